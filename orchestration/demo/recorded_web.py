"""The recorded web as a process: started on a free loopback port, stopped with the block.

The recording and its server are in `tests/replay/` of the source tree; an installed package has none, and says so.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from schemas.errors import BuildError, NotFoundError

REPLAY = Path(__file__).resolve().parents[2] / "tests" / "replay"
HOSTS = ("imgur.com", "i.imgur.com", "api.imgur.com")
DUMP = "RS_recorded.zst"
START_TIMEOUT_S = 20.0


def recording_at(recording: Path = REPLAY / "recording") -> Path:
    """Return the folder of the recording.

    Raises:
        NotFoundError: it is not there.
    """
    if not (recording / DUMP).is_file():
        raise NotFoundError(f"{recording}: no recorded web there; run the demo from a clone of the repository")
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
def serving(recording: Path) -> Iterator[int]:
    """Serve a recording while the block runs, and give its port.

    Raises:
        BuildError: the server ended before the block did: what was scraped has holes, and another attempt fills them.
    """
    with tempfile.TemporaryDirectory(prefix="multilink-web-") as scratch:
        port_file = Path(scratch) / "port"
        server = REPLAY / "server.py"
        process = subprocess.Popen(
            [sys.executable, str(server), "--recording", str(recording), "--port-file", str(port_file)],
            stdout=subprocess.DEVNULL,
        )
        try:
            yield _port(process, port_file)
            if process.poll() is not None:
                raise BuildError(f"the recorded web ended with status {process.returncode} while it was scraped")
        finally:
            process.terminate()
            process.wait()


def web_settings(dumps: Sequence[Path], port: int) -> list[str]:
    """Return the settings of a `diy` build that scrapes a recorded web, served on a port, instead of the real one.

    Only addresses, pace and patience differ: a loopback server needs no mercy, and its one endless answer no minute.
    """
    address = f"127.0.0.1:{port}"
    return [
        f"source.dump={','.join(map(str, dumps))}",
        "http.contact=nobody@localhost",
        "source.imgur_url=http://imgur.com",
        "source.imgur_api_url=http://api.imgur.com",
        f"http.allow_hosts={address}",
        "http.connect_to=" + ",".join(f"{host}={address}" for host in HOSTS),
        "http.requests_per_second=1000",
        "http.connections_per_host=8",
        "http.attempts=2",
        "http.total_timeout_s=4",
        "http.backoff_s=0.2",
    ]


def dumps_of(recording: Path) -> list[Path]:
    """Return the dumps of a recording: the recorded one, then those that were added beside it (`RS_added*`)."""
    return [recording / DUMP, *sorted(recording.glob("RS_added*"))]


def _port(process: subprocess.Popen[bytes], port_file: Path) -> int:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise BuildError(f"the recorded web ended with status {process.returncode} before it listened")
        text = port_file.read_text().strip() if port_file.exists() else ""
        if text:
            return int(text)
        time.sleep(0.05)
    raise BuildError(f"the recorded web did not listen within {START_TIMEOUT_S:.0f} s")
