"""Fetching images against img2dataset, side by side in one run, on loopback and two processes.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install img2dataset==1.47.0     (once; it needs other pyarrow)
    python benchmarks/fetch.py --peer /tmp/peer/bin/python [--images 4000] [--rounds 3] [--json]

Target: at least the images per second of img2dataset, both making JPEG copies of 256 px (shorter side, quality 90) as
files on disk, with SHA-256. Ours also asks robots.txt, checks addresses, limits and content, keeps the original in the
raw store, computes the perceptual hash, and says for each image what became of it. The peer has its fastest settings:
no EXIF, area interpolation, and of `--peer-threads` the count that does best.

The pictures are of 400 x 300 px and about 20 KB; a comment in each makes every file another. The server is a process of
its own on the same cores, which it takes little of. Rounds of the contestants alternate, and the fastest of each counts:

    function    `obtain_image` over the addresses, in two processes of several threads each
    stage       the images stage as a build runs it: `ObtainImages` on Beam's local runner with two workers
    img2dataset two processes

Time counts from the first start of a worker process to the last file: imports of the driver are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import math
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apache_beam as beam
import numpy as np
from PIL import Image as Pixels

from pipelines.config import FingerprintName, HttpConfig, ImagesConfig
from pipelines.documents.draft import Draft
from pipelines.documents.takedown import Takedowns
from pipelines.http.fan_out import map_concurrently
from pipelines.images.obtain import ImagePlaces, obtain_image
from pipelines.images.store import ImageStore, stored_copies
from pipelines.images.transforms import ObtainImages
from pipelines.launch import Runner, run_pipeline
from pipelines.progress import Progress
from schemas.documents import Provenance
from schemas.failures import Failure
from schemas.images import Image
from schemas.lake import Lake

PICTURES = 64  # different ones; comments make as many files of them as are asked for
SIZE_PX = (400, 300)
PROCESSES = 2
CONNECTIONS = 8  # of ours, to the one host
ALBUM = 10  # images of one draft
PROVENANCE = Provenance(source="benchmark", record_id="")
NAMES = ("function", "stage", "img2dataset")


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


# The contestants: each fetches all addresses into an empty folder, and returns the seconds.


def settings(port: int, folder: Path) -> ImagePlaces:
    lake = Lake.at(str(folder))
    http = HttpConfig(
        allow_hosts=(f"127.0.0.1:{port}",), requests_per_second=100_000.0, connections_per_host=CONNECTIONS
    )
    return ImagePlaces(http=http, raw=lake.raw, store=ImageStore(stored_copies(lake, 90)), files="")


def fetch_with_function(addresses: list[str], places: ImagePlaces) -> float:
    begin = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        shares = [(addresses[number::PROCESSES], places) for number in range(PROCESSES)]
        obtained = sum(pool.starmap(obtain_all, shares))
    seconds = time.perf_counter() - begin
    check(obtained, len(addresses))
    return seconds


def obtain_all(addresses: list[str], places: ImagePlaces) -> int:
    obtain = partial(obtain_image, places=places, config=ImagesConfig(), fingerprint=FingerprintName.PHASH)
    outcomes = map_concurrently(obtain, addresses, threads=places.http.connections_per_host)
    return sum(isinstance(outcome, Image) for outcome in outcomes)


def fetch_with_stage(addresses: list[str], places: ImagePlaces) -> float:
    drafts = [
        Draft(str(begin), "benchmark", (), tuple(addresses[begin : begin + ALBUM]), None, PROVENANCE)
        for begin in range(0, len(addresses), ALBUM)
    ]
    stage = ObtainImages(places, ImagesConfig(), FingerprintName.PHASH, Takedowns(()), Progress(None))

    def assemble(root: beam.Pipeline) -> None:
        outcomes = root | "drafts" >> beam.Create(drafts) | "images" >> stage
        _ = outcomes | "no failure" >> beam.Map(refuse_failure)

    begin = time.perf_counter()
    run_pipeline(assemble, runner=Runner.LOCAL, workers=PROCESSES)
    return time.perf_counter() - begin


def refuse_failure(outcome: tuple[str, Image | Failure]) -> None:
    if isinstance(outcome[1], Failure):
        raise RuntimeError(f"{outcome[1]}")


PEER = """
import json, sys, time
from img2dataset import download
settings = json.loads(sys.argv[1])
begin = time.perf_counter()
download(**settings)
print(json.dumps({"seconds": time.perf_counter() - begin}))
"""


def fetch_with_img2dataset(addresses: list[str], folder: Path, *, python: str, threads: int) -> float:
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
        "user_agent_token": "multilink-benchmark",
    }
    environment = os.environ | {"NO_ALBUMENTATIONS_UPDATE": "1"}
    command = [python, "-W", "ignore", "-c", PEER, json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    check(sum(1 for _ in (folder / "images").glob("*/*.jpg")), len(addresses))
    return seconds_of_shards(folder / "images")


def seconds_of_shards(images: Path) -> float:
    """Return the time from its first shard's start to its last one's end: what it starts and waits for is left out."""
    shards = [json.loads(path.read_text()) for path in images.glob("*_stats.json")]
    return max(shard["end_time"] for shard in shards) - min(shard["start_time"] for shard in shards)


def check(found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"expected {expected} images, found {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=NAMES)
    parser.add_argument("--peer", help="python of an environment that has img2dataset")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the figures as the last line")
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    with serving() as server:
        addresses = [f"http://127.0.0.1:{server['port']}/{n}.jpg" for n in range(options.images)]
        for name in NAMES:
            if options.only and name != options.only:
                continue
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory() as folder:
                    if name == "function":
                        s = fetch_with_function(addresses, settings(server["port"], Path(folder)))
                    elif name == "stage":
                        s = fetch_with_stage(addresses, settings(server["port"], Path(folder)))
                    else:
                        s = fetch_with_img2dataset(addresses, Path(folder), python=options.peer, threads=32)
                print(name, server["mean_bytes"], s, options.images / s, flush=True)


if __name__ == "__main__":
    main()
