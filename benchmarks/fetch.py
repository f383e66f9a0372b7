"""Fetching the images of `multilink build` against img2dataset, side by side in one run, on loopback and two processes.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install img2dataset==1.47.0     (it needs another pyarrow)
    python -m benchmarks.fetch --peer /tmp/peer/bin/python [--images 8000] [--case many-hosts] [--rounds 1] [--json]

    many-hosts   200 hosts, 40 images each. Ten are dead: five refuse connections, five never take one. Ten answer
                 after two seconds. Five answer 429 with a Retry-After of a second to their first three requests.
    one-host     one host, asked as fast as it answers

Target: at least the images per second of img2dataset, both making JPEG copies of 256 px (shorter side, quality 90).
`stage` is the images stage as a build runs it: `ObtainImages` on Beam's local runner with two workers. It also asks
robots.txt, checks addresses, limits and content, keeps a host's pace (four connections and, with many hosts, the
default of five requests a second), keeps each original in the raw store, and computes the perceptual hash. The peer
keeps a copy and its record; it has its fastest settings (no EXIF, area interpolation), two retries, and of the thread
counts the one that does best.

The pictures are of 400 x 300 px and about 20 KB; a comment in each makes every file another. The server is a process of
its own on the same cores; hosts are addresses of the loopback range. Time is that of the whole command but for the
imports of its driver: starting the workers counts, for each. A rate counts the images that were had. Files are written
to memory (/dev/shm) where there is such a folder, and removed when all have had their turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from argparse import SUPPRESS
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image as Pixels
from pyarrow.dataset import dataset

from benchmarks.command import cpu_seconds, parser_of, print_figures
from pipelines.images.inspect import copy_packs
from pipelines.images.obtain import Found, ImageAccess
from pipelines.settings import FingerprintName, HttpConfig, ImagesConfig
from pipelines.sources.records import CandidateDocument, CandidateImage
from schemas.documents import Provenance
from schemas.failures import Failure
from schemas.lake import Lake

MANY_HOSTS, ONE_HOST = "many-hosts", "one-host"
HOSTS, SLOW_S, REFUSALS = 200, 2.0, 3
PICTURES = 64  # different ones; comments make as many files of them as are asked for
SIZE_PX = (400, 300)
PROCESSES = 2
CONNECTIONS = 4  # of ours, to one host: as a build's default is
ALBUM = 10  # images of one candidate
PROVENANCE = Provenance(source="benchmark", record_id="")
PEER_NAME = "img2dataset"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def picture(seed: int) -> bytes:
    """Return a JPEG of about 20 KB: soft shapes under some grain, as photographs have."""
    random = np.random.default_rng(seed)
    coarse = Pixels.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8)).resize(SIZE_PX, Pixels.Resampling.BICUBIC)
    grain = random.normal(0, 6.5, (SIZE_PX[1], SIZE_PX[0], 1))
    pixels = np.clip(np.asarray(coarse) + grain, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Pixels.fromarray(pixels).save(stream, "JPEG", quality=75)
    return stream.getvalue()


class Behaviour(StrEnum):
    """What a host does."""

    ANSWERS = "answers"
    SLOW = "slow"
    BUSY = "busy"  # at first
    REFUSES = "refuses"
    SILENT = "silent"  # takes no connection


def behaviour_of(number: int) -> Behaviour:
    """Return what the host of a number, from 1, does among many."""
    if number % 20 == 0:
        return Behaviour.REFUSES if number % 40 == 0 else Behaviour.SILENT
    if number % 20 == 10:
        return Behaviour.SLOW
    return Behaviour.BUSY if number % 40 == 5 else Behaviour.ANSWERS


class ImageServer(asyncio.Protocol):
    """HTTP/1.1 with open connections, of GET alone: `/<number>.jpg` is a picture with the number in a comment."""

    def __init__(self, pictures: list[bytes], behaviour: Behaviour, refusals: list[int]) -> None:
        self._pictures = pictures
        self._behaviour = behaviour
        self._refusals = refusals
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while b"\r\n\r\n" in self._unread:
            request, _, self._unread = self._unread.partition(b"\r\n\r\n")
            answer = self._answer(request.split(b" ", 2)[1], closes=b"connection: close" in request.lower())
            if self._behaviour is Behaviour.SLOW:
                asyncio.get_running_loop().call_later(SLOW_S, self._send, answer)
            else:
                self._send(answer)

    def _send(self, answer: bytes) -> None:
        self._transport.write(answer)
        if b"Connection: close" in answer[:200]:
            self._transport.close()

    def _answer(self, path: bytes, *, closes: bool) -> bytes:
        status, kind, body = b"200 OK", b"text/plain", b"User-agent: *\nDisallow: /private\n"
        if path.endswith(b".jpg"):
            data = self._pictures[int(path[1:-4]) % len(self._pictures)]
            kind, body = b"image/jpeg", data[:2] + b"\xff\xfe" + (len(path) + 2).to_bytes(2, "big") + path + data[2:]
            if self._behaviour is Behaviour.BUSY and self._refusals[0]:
                self._refusals[0] -= 1
                status, kind, body = b"429 Too Many Requests\r\nRetry-After: 1", b"text/plain", b""
        end = b"close" if closes else b"keep-alive"
        head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: %s\r\n\r\n"
        return head % (status, kind, len(body), end) + body


def serve(case: str) -> None:
    """Serve until killed; the hosts are printed first."""
    silent: list[socket.socket] = []

    def silent_host(address: str, port: int) -> None:
        """Listen, and fill the queue of connections, so that no further one is taken."""
        listening = socket.socket()
        listening.bind((address, port))
        listening.listen(0)
        silent.append(listening)
        for _ in range(8):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
            silent.append(waiting)

    async def run() -> None:
        pictures = [picture(seed) for seed in range(PICTURES)]
        loop = asyncio.get_running_loop()
        hosts, port = [], 0
        for number in range(1, 2 if case == ONE_HOST else HOSTS + 1):
            address = f"127.0.1.{number}"
            behaviour = behaviour_of(number)
            if behaviour is Behaviour.SILENT:
                silent_host(address, port)
            elif behaviour is not Behaviour.REFUSES:
                make = partial(ImageServer, pictures, behaviour, [REFUSALS])
                server = await loop.create_server(make, address, port, backlog=1024)
                port = server.sockets[0].getsockname()[1]
            hosts.append(f"{address}:{port}")
        print(json.dumps(hosts), flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


@dataclass(frozen=True)
class Server:
    case: str
    hosts: list[str]


@contextlib.contextmanager
def serving(case: str) -> Iterator[Server]:
    """Run the server for a block."""
    command = [sys.executable, "-m", "benchmarks.fetch", "--serve", "--case", case]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield Server(case, json.loads(server.stdout.readline()))
        finally:
            server.kill()


# The contestants: each fetches all addresses into an empty folder.


def access_of(server: Server, folder: Path) -> ImageAccess:
    lake = Lake.at(str(folder))
    rate = {"requests_per_second": 100_000.0} if server.case == ONE_HOST else {}
    http = HttpConfig(allow_hosts=tuple(server.hosts), connections_per_host=CONNECTIONS, **rate)
    return ImageAccess(
        http=http,
        raw=lake.raw,
        copies=copy_packs(lake, ImagesConfig(), FingerprintName.PHASH),
        files="",
        config=ImagesConfig(),
        fingerprint=FingerprintName.PHASH,
    )


def fetch_with_stage(addresses: list[str], folder: Path, server: Server) -> Had:
    import apache_beam as beam

    from pipelines.images.transforms import ObtainImages
    from pipelines.launch import run_pipeline
    from pipelines.settings import Runner

    candidates = [
        CandidateDocument(
            str(begin), "benchmark", (), tuple(map(CandidateImage, addresses[begin : begin + ALBUM])), None, PROVENANCE
        )
        for begin in range(0, len(addresses), ALBUM)
    ]
    access = access_of(server, folder)

    def assemble(root: beam.Pipeline) -> None:
        outcomes = root | "candidates" >> beam.Create(candidates) | "images" >> ObtainImages(access, PROCESSES)
        _ = outcomes | "of all" >> beam.Flatten() | "write" >> beam.MapTuple(partial(note, folder=str(folder)))

    begin = time.perf_counter()
    run_pipeline(assemble, runner=Runner.LOCAL, workers=PROCESSES)
    seconds = time.perf_counter() - begin
    return Had(dataset(access.copies.folder.uri).count_rows(), seconds)


def note(_: str, outcome: Found, folder: str) -> None:
    """Write down what failed, so that the run can be looked at."""
    if isinstance(outcome, Failure):
        with Path(folder, "failures").open("a") as stream:
            stream.write(f"{outcome.reason} {outcome.message}\n")


PEER = """
import json, sys, time
from img2dataset import download
begin = time.perf_counter()
download(**json.loads(sys.argv[1]))
print(json.dumps({"seconds": time.perf_counter() - begin}))
"""


def fetch_with_img2dataset(addresses: list[str], folder: Path, *, python: str, threads: int) -> Had:
    """Return what it had and the seconds it took, without its imports."""
    urls = folder / "urls.txt"
    urls.write_text("".join(f"{address}\n" for address in addresses))
    options = {
        "url_list": str(urls),
        "output_folder": str(folder / "images"),
        "output_format": "files",
        "image_size": 256,
        "resize_mode": "keep_ratio",
        "encode_quality": 90,
        "processes_count": PROCESSES,
        "thread_count": threads,
        "retries": 2,
        "number_sample_per_shard": math.ceil(len(addresses) / PROCESSES),
        "extract_exif": False,
    }
    command = [python, "-W", "ignore", "-c", PEER, json.dumps(options)]
    environment = os.environ | {"NO_ALBUMENTATIONS_UPDATE": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    seconds = float(json.loads(done.stdout.splitlines()[-1])["seconds"])
    return Had(sum(1 for _ in (folder / "images").glob("*/*.jpg")), seconds)


# Measuring.


@dataclass(frozen=True)
class Had:
    """What one contestant had in one turn."""

    images: int
    seconds: float
    cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.images / self.seconds


Contestant = Callable[[list[str], Path], Had]


def take_turn(contestant: Contestant, addresses: list[str], parent: str) -> Had:
    cpu = cpu_seconds()
    had = contestant(addresses, Path(tempfile.mkdtemp(dir=parent)))
    return replace(had, cpu_seconds=cpu_seconds() - cpu)


def compare(
    contestants: dict[str, Contestant], addresses: list[str], *, rounds: int, parent: str | None
) -> dict[str, Had]:
    """Return the fastest turn of each."""
    turns: dict[str, list[Had]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory(dir=parent) as folder:  # removed at the end: removing files slows ext4 down
        for _ in range(rounds):
            for name, contestant in contestants.items():
                turns[name].append(take_turn(contestant, addresses, folder))
    return {name: max(taken, key=lambda had: had.rate) for name, taken in turns.items()}


def tell(figures: dict[str, Had], peer: str | None) -> dict[str, float]:
    """Print a table, and return the ratios of our rates to the peer's (without a peer: our images per second)."""
    print(f"{'':<16}{'images':>8}{'seconds':>9}{'images/s':>10}{'CPU ms/image':>14}{'ratio':>9}")
    ratios = {}
    for name, had in figures.items():
        ratio = had.rate / figures[peer].rate if peer else 0.0
        cpu_ms = 1000 * had.cpu_seconds / max(had.images, 1)
        print(f"{name:<16}{had.images:>8,}{had.seconds:>9.1f}{had.rate:>10.0f}{cpu_ms:>14.2f}{ratio:>8.2f}x")
        ratios[name] = round(ratio, 2) if peer else round(had.rate, 1)
    return ratios


def main() -> None:
    logging.disable(logging.WARNING)  # of Beam's workers, that they lack Google's clients
    parser = parser_of(__doc__)
    parser.add_argument("--images", type=int, default=8_000)
    parser.add_argument("--case", choices=[MANY_HOSTS, ONE_HOST], default=MANY_HOSTS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--peer", help="python of an environment that has img2dataset; without it ours alone is measured"
    )
    parser.add_argument("--peer-threads", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--folder", default=MEMORY, help="where to write; default: memory, else the temporary files'")
    parser.add_argument("--serve", action="store_true", help=SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.case)
        return
    with serving(options.case) as server:
        contestants: dict[str, Contestant] = {"stage": partial(fetch_with_stage, server=server)}
        for threads in options.peer_threads if options.peer else ():
            contestants[f"{PEER_NAME}-{threads}"] = partial(
                fetch_with_img2dataset, python=options.peer, threads=threads
            )
        hosts = server.hosts
        addresses = [f"http://{hosts[number % len(hosts)]}/{number}.jpg" for number in range(options.images)]
        print(
            f"{options.images:,} images, {options.case}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        figures = compare(contestants, addresses, rounds=options.rounds, parent=options.folder)
    peers = [name for name in figures if name.startswith(PEER_NAME)]
    ratios = tell(figures, max(peers, key=lambda name: figures[name].rate) if peers else None)
    if not peers:
        print("no ratio to img2dataset: --peer names no environment that has it")
    print_figures(options, ratios)


if __name__ == "__main__":
    main()
