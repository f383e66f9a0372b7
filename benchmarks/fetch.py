"""Fetching images against img2dataset, side by side in one run, on loopback and two processes.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install img2dataset==1.47.0     (it needs another pyarrow)
    python benchmarks/fetch.py --peer /tmp/peer/bin/python [--images 4000] [--rounds 3] [--json]

Target: at least the images per second of img2dataset, both making JPEG copies of 256 px (shorter side, quality 90) as
files, with SHA-256. Ours also asks robots.txt, checks addresses, limits and content, keeps each original and its
response in the raw store, and computes the perceptual hash; the peer keeps a copy and its record.
The peer has its fastest settings: no EXIF, area interpolation, and of the thread counts the one that does best.

The pictures are of 400 x 300 px and about 20 KB; a comment in each makes every file another. The server is a process of
its own on the same cores. Contestants take turns, and the fastest turn of each counts:

    function     `obtain_images` over the addresses, in two processes of two threads each
    stage        the images stage as a build runs it: `ObtainImages` on Beam's local runner with two workers
    img2dataset  two processes

Time is that of the whole command but for the imports of its driver: starting the workers counts, for each. CPU time is
user and system of driver and workers, per image after the first quarter, so without what starting takes: it says what
the cores can do where others disturb the clock, and its ratio is that of the rates that busy cores sustain.

Files are written to memory (/dev/shm) where there is such a folder, and removed when all have had their turns. On ext4,
making a file goes by the places of files removed in the last five minutes one by one: a run soon after another, or
after the tests, spends a quarter of the processor on that. `--folder` measures on a disk; let it rest before.

Found on two cores, 8,000 images, five runs in memory and on a rested disk: function 1.01 to 1.15 of the peer's rate
(median 1.11), stage 0.98 to 1.09 (median 1.07); on the disk 636 and 623 images/s, the peer 571, and 2.9, 2.4 and 2.7 ms
of the processor an image. Both start within 2.3 s. Of ours, as a thread's own time at its least: decoding 0.43 ms, the
copy 0.42 (0.19 of it the resize; 0.95 in the peer), perceptual hash 0.54 (the peer has none), the client 0.45. What
brought it there from 0.56 of the peer: the worker beside the one that had the host did nothing; urllib3 took 0.25 ms
where http.client takes 0.09; Pillow asked the system for 270 pages a picture, and took 1.0 ms to resize it; threads
that inspected side by side cost a sixth; workers ended one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import logging
import math
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image as Pixels

from pipelines.images.obtain import ImagePlaces, obtain_images
from pipelines.images.store import ImageStore, stored_copies
from pipelines.progress import Progress
from pipelines.settings import FingerprintName, HttpConfig, ImagesConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.takedowns import Takedowns
from schemas.documents import Provenance
from schemas.failures import Failure
from schemas.images import Image
from schemas.lake import Lake

PICTURES = 64  # different ones; comments make as many files of them as are asked for
SIZE_PX = (400, 300)
PROCESSES = 2
CONNECTIONS = 4  # of ours, to the one host: as a build's default is
ALBUM = 10  # images of one draft
PROVENANCE = Provenance(source="benchmark", record_id="")
PEER_NAME = "img2dataset"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


# The server: a process of its own.


def picture(seed: int) -> bytes:
    """Return a JPEG of about 20 KB: soft shapes under some grain, as photographs have."""
    random = np.random.default_rng(seed)
    coarse = Pixels.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8)).resize(SIZE_PX, Pixels.Resampling.BICUBIC)
    grain = random.normal(0, 6.5, (SIZE_PX[1], SIZE_PX[0], 1))
    pixels = np.clip(np.asarray(coarse) + grain, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Pixels.fromarray(pixels).save(stream, "JPEG", quality=75)
    return stream.getvalue()


class ImageServer(asyncio.Protocol):
    """HTTP/1.1 with open connections, of GET alone: `/<number>.jpg` is a picture with the number in a comment."""

    def __init__(self, pictures: list[bytes]) -> None:
        self._pictures = pictures
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while b"\r\n\r\n" in self._unread:
            request, _, self._unread = self._unread.partition(b"\r\n\r\n")
            closes = b"connection: close" in request.lower()
            self._transport.write(self._answer(request.split(b" ", 2)[1], closes=closes))
            if closes:
                self._transport.close()

    def _answer(self, path: bytes, *, closes: bool) -> bytes:
        kind, body = b"text/plain", b"User-agent: *\nDisallow: /private\n"
        if path.endswith(b".jpg"):
            data = self._pictures[int(path[1:-4]) % len(self._pictures)]
            kind, body = b"image/jpeg", data[:2] + b"\xff\xfe" + (len(path) + 2).to_bytes(2, "big") + path + data[2:]
        end = b"close" if closes else b"keep-alive"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: %s\r\n\r\n"
        return head % (kind, len(body), end) + body


def serve() -> None:
    """Serve until killed; the port is printed first."""

    async def run() -> None:
        pictures = [picture(seed) for seed in range(PICTURES)]
        loop = asyncio.get_running_loop()
        server = await loop.create_server(partial(ImageServer, pictures), "127.0.0.1", 0, backlog=1024)
        mean = sum(map(len, pictures)) / len(pictures)
        print(json.dumps({"port": server.sockets[0].getsockname()[1], "mean_bytes": mean}), flush=True)
        await server.serve_forever()

    asyncio.run(run())


@contextlib.contextmanager
def serving() -> Iterator[dict[str, float]]:
    """Run the server for a block; gives `port` and `mean_bytes`."""
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.kill()


# The contestants: each fetches all addresses into an empty folder.


def settings(port: int, folder: Path) -> ImagePlaces:
    lake = Lake.at(str(folder))
    http = HttpConfig(
        allow_hosts=(f"127.0.0.1:{port}",), requests_per_second=100_000.0, connections_per_host=CONNECTIONS
    )
    return ImagePlaces(http=http, raw=lake.raw, store=ImageStore(stored_copies(lake, 90)), files="")


def fetch_with_function(addresses: list[str], folder: Path, port: int) -> None:
    places = settings(port, folder)
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        shares = [(addresses[number::PROCESSES], places) for number in range(PROCESSES)]
        check(sum(pool.starmap(obtain_all, shares)), len(addresses))


def obtain_all(addresses: list[str], places: ImagePlaces) -> int:
    outcomes = obtain_images(
        addresses,
        places=places,
        config=ImagesConfig(),
        fingerprint=FingerprintName.PHASH,
        threads=CONNECTIONS // PROCESSES,
    )
    return sum(isinstance(outcome, Image) for _, outcome in outcomes)


def fetch_with_stage(addresses: list[str], folder: Path, port: int) -> None:
    import apache_beam as beam  # here alone: the function's processes need none of it

    from pipelines.images.transforms import ObtainImages
    from pipelines.launch import Runner, run_pipeline

    drafts = [
        CandidateDocument(str(begin), "benchmark", (), tuple(addresses[begin : begin + ALBUM]), None, PROVENANCE)
        for begin in range(0, len(addresses), ALBUM)
    ]
    places = settings(port, folder)
    stage = ObtainImages(places, ImagesConfig(), FingerprintName.PHASH, Takedowns(()), Progress(None), PROCESSES)

    def assemble(root: beam.Pipeline) -> None:
        outcomes = root | "drafts" >> beam.Create(drafts) | "images" >> stage
        _ = outcomes | "no failure" >> beam.Map(refuse_failure)

    run_pipeline(assemble, runner=Runner.LOCAL, workers=PROCESSES)
    check(sum(1 for _ in places.store.folder.files()), len(addresses))


def refuse_failure(outcome: tuple[str, Image | Failure]) -> None:
    if isinstance(outcome[1], Failure):
        raise RuntimeError(f"{outcome[1]}")


PEER = """
import json, sys, time
from img2dataset import download
begin = time.perf_counter()
download(**json.loads(sys.argv[1]))
print(json.dumps({"seconds": time.perf_counter() - begin}))
"""


def fetch_with_img2dataset(addresses: list[str], folder: Path, *, python: str, threads: int) -> float:
    """Return the seconds it took, without its imports."""
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
        "number_sample_per_shard": math.ceil(len(addresses) / PROCESSES),
        "extract_exif": False,
    }
    command = [python, "-W", "ignore", "-c", PEER, json.dumps(options)]
    environment = os.environ | {"NO_ALBUMENTATIONS_UPDATE": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    check(sum(1 for _ in (folder / "images").glob("*/*.jpg")), len(addresses))
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def check(found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"expected {expected} images, found {found}")


# Measuring.


@dataclass(frozen=True)
class Turn:
    """What one contestant took once."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Figures:
    """What a contestant's fastest turns give, in images per second and milliseconds per image."""

    rate: float
    cpu_ms: float


Contestant = Callable[[list[str], Path], float | None]


def take_turn(contestant: Contestant, addresses: list[str], parent: str) -> Turn:
    folder = tempfile.mkdtemp(dir=parent)
    cpu, begin = cpu_seconds(), time.perf_counter()
    seconds = contestant(addresses, Path(folder))
    return Turn(seconds or time.perf_counter() - begin, cpu_seconds() - cpu)


def cpu_seconds() -> float:
    """Return the CPU time of this process and its ended children: the server is still running, and not counted."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def compare(
    contestants: dict[str, Contestant], addresses: list[str], *, rounds: int, parent: str | None
) -> dict[str, Figures]:
    some = addresses[: len(addresses) // 4]
    turns: dict[str, list[tuple[Turn, Turn]]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory(dir=parent) as folder:  # removed at the end: see the docstring
        for _ in range(rounds):
            for name, contestant in contestants.items():
                turns[name].append((take_turn(contestant, some, folder), take_turn(contestant, addresses, folder)))
    return {name: summarise(taken, len(some), len(addresses)) for name, taken in turns.items()}


def summarise(taken: list[tuple[Turn, Turn]], few: int, all_: int) -> Figures:
    few_cpu_s, all_cpu_s = (min(turn.cpu_seconds for turn in turns) for turns in zip(*taken, strict=True))
    seconds = min(turn.seconds for _, turn in taken)
    return Figures(all_ / seconds, (all_cpu_s - few_cpu_s) / (all_ - few) * 1000)


def tell(figures: dict[str, Figures], peer: str | None) -> dict[str, float]:
    """Print a table, and return the ratios of ours to the peer's rates (without a peer: our images per second)."""
    print(f"{'':<16}{'images/s':>10}{'CPU ms/image':>15}{'ratios':>10}")
    ratios = {}
    for name, row in figures.items():
        line = f"{name:<16}{row.rate:>10.0f}{row.cpu_ms:>15.2f}"
        if peer is None:
            ratios[f"{name}-images-per-s"] = round(row.rate, 1)
        else:
            rate, cpu = row.rate / figures[peer].rate, figures[peer].cpu_ms / row.cpu_ms
            line += f"{rate:>9.2f}x{cpu:>9.2f}x"
            ratios |= {name: round(rate, 2), f"{name}-cpu": round(cpu, 2)}
        print(line)
    return ratios


def main() -> None:
    logging.disable(logging.WARNING)  # of Beam's workers, that they lack Google's clients
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--peer", help="python of an environment that has img2dataset; without it ours alone is measured"
    )
    parser.add_argument("--peer-threads", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--folder", default=MEMORY, help="where to write; default: memory, else the temporary files'")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the ratios as the last line")
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    with serving() as server:
        port = int(server["port"])
        contestants: dict[str, Contestant] = {
            "function": partial(fetch_with_function, port=port),
            "stage": partial(fetch_with_stage, port=port),
        }
        for threads in options.peer_threads if options.peer else ():
            contestants[f"{PEER_NAME}-{threads}"] = partial(
                fetch_with_img2dataset, python=options.peer, threads=threads
            )
        addresses = [f"http://127.0.0.1:{port}/{number}.jpg" for number in range(options.images)]
        print(
            f"{options.images:,} images of {server['mean_bytes'] / 1000:.1f} KB, {os.cpu_count()} cores, "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        figures = compare(contestants, addresses, rounds=options.rounds, parent=options.folder)
    peers = [name for name in figures if name.startswith(PEER_NAME)]
    ratios = tell(figures, max(peers, key=lambda name: figures[name].rate) if peers else None)
    if not peers:
        print("no ratio to img2dataset: --peer names no environment that has it")
    if options.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
