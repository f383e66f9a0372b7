"""The recorded web as a process: started on a free loopback port, stopped with the block.

The recording and its server are in `tests/replay/` of the source tree, which is also a distribution of its own,
`multilink-recorded-web`: an installed multilink finds them there.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from schemas.messages import BuildError, NotFoundError

PACKAGE = "multilink_recorded_web"
LOOPBACK = "127.0.0.1"
HOSTS = ("imgur.com", "i.imgur.com", "api.imgur.com")
DUMP = "RS_recorded.zst"
NEWS_HOST = "pictures.newsroom.example"


def replay() -> Path:
    """Return the folder of the server and its recording: of the clone that this runs from, else of the package.

    Raises:
        NotFoundError: there is neither.
    """
    folders = [Path(__file__).resolve().parents[2] / "tests" / "replay"]
    spec = find_spec(PACKAGE)
    folders += map(Path, (spec and spec.submodule_search_locations) or ())
    found = next((folder for folder in folders if (folder / "server.py").is_file()), None)
    if found is None:
        raise NotFoundError(
            "no recorded web is here: run the demo from a clone of the repository, or install the package "
            f"{PACKAGE.replace('_', '-')} (`pip install tests/replay` in a clone)"
        )
    return found


def recording_at(folder: Path | None = None) -> Path:
    """Return the folder of a recording, by default of the one that is here.

    Raises:
        NotFoundError: it is not there.
    """
    recording = folder or replay() / "recording"
    if not (recording / DUMP).is_file():
        raise NotFoundError(f"{recording}: no recorded web there")
    return recording


@contextlib.contextmanager
def scraping(recording: Path) -> Iterator[list[str]]:
    """Serve a recording while the block runs, and give the settings of a `diy` build that scrapes it.

    The dumps are listed before the server reads its albums: a post that is added meanwhile is the next build's.
    """
    dumps = dumps_of(recording)
    with serving(recording) as port:
        yield web_settings(dumps, port)


@contextlib.contextmanager
def recorded_news(recording: Path) -> Iterator[list[str]]:
    """Serve a recording while the block runs, and give the settings of a `news` build that fetches its pictures."""
    with serving(recording) as port:
        articles = recording / "news" / "articles.jsonl"
        source = [f"source.articles={articles}", f"source.images=http://{NEWS_HOST}/"]
        yield [*source, *_addresses(port, LOOPBACK, (NEWS_HOST,))]


@contextlib.contextmanager
def serving(recording: Path) -> Iterator[int]:
    """Serve a recording while the block runs, and give its port.

    The server is in a session of its own, where Ctrl-C does not come, and ends when this process does, however that is.

    Raises:
        BuildError: the server ended before the block did: what was scraped has holes, and another attempt fills them.
    """
    command = [sys.executable, str(replay() / "server.py"), "--recording", str(recording), "--until-eof"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        try:
            address = process.stdout.readline() if process.stdout is not None else ""
            if not address:
                raise BuildError(f"the recorded web ended with status {process.wait()} before it listened")
            yield int(address.rpartition(":")[2])
            if process.poll() is not None:
                raise BuildError(f"the recorded web ended with status {process.returncode} while it was scraped")
        finally:
            process.terminate()


def web_settings(dumps: Sequence[Path], port: int, host: str = LOOPBACK) -> list[str]:
    """Return the settings of a `diy` build that scrapes a recorded web, served on a port, instead of the real one.

    Only addresses, pace and patience differ: a server nearby needs no mercy, and its one endless answer no minute.
    """
    return [
        f"source.dump={','.join(map(str, dumps))}",
        "source.imgur_url=http://imgur.com",
        "source.imgur_api_url=http://api.imgur.com",
        *_addresses(port, host, HOSTS),
        "http.total_timeout_s=1.5",
    ]


def _addresses(port: int, host: str, names: Sequence[str]) -> list[str]:
    """Return settings that lead the named hosts to a server nearby."""
    address = f"{host}:{port}"
    return [
        "http.contact=nobody@localhost",
        f"http.allow_hosts={address}",
        "http.connect_to=" + ",".join(f"{name}={address}" for name in names),
        "http.requests_per_second=1000",
        "http.connections_per_host=8",
        "http.attempts=2",
        "http.backoff_s=0.2",
    ]


def dumps_of(recording: Path) -> list[Path]:
    """Return the dumps of a recording: the recorded one, then those that were added beside it (`RS_added*`)."""
    return [recording / DUMP, *sorted(recording.glob("RS_added*"))]
