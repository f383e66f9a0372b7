"""Hostile answers to a request for an image: each ends as a failure row with its reason, and costs little.

The bytes come from a real server. Their decoding alone is in tests/schemas/test_codecs.py, redirects and addresses have
files of their own here.
"""

import gzip
import json
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from picture_files import file_of
from PIL import Image as Pixels

import pipelines
from pipelines.images.inspect import PackedImage, copy_packs
from pipelines.images.obtain import ImageAccess, obtain_images
from pipelines.settings import FingerprintName, HttpConfig, ImagesConfig
from pipelines.web.addresses import AddressBook
from pipelines.web.requests import FetchFailed, parse_target
from pipelines.web.transport import Transport
from schemas.documents import Image
from schemas.failures import Failure, Reason, Stage
from schemas.lake import Folder, Lake

ROOT = Path(pipelines.__file__).parents[1]
JPEG_HEADER = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n"
TEN_GIGABYTES = 10_000_000_000


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *, depth: int = 8, colour: int = 2, before: bytes = b"") -> bytes:
    """Return a black PNG, packed row by row; `colour` is 0 grey, 2 RGB, 3 palette or 6 RGBA."""
    samples = {0: 1, 2: 3, 3: 1, 6: 4}[colour]
    row = bytes(1 + (width * samples * depth + 7) // 8)
    packer = zlib.compressobj(9)
    body = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before
    return head + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.fixture
def obtain(tmp_path: Path, web) -> Callable[..., Image | Failure]:
    """`obtain(path, **settings)`: what becomes of the image at a path of the server."""

    def call(path: str, **settings: Any) -> Image | Failure:
        quick: dict[str, Any] = {"requests_per_second": 1000.0, "attempts": 1, "max_bytes": 2_000_000}
        http = HttpConfig(allow_hosts=(f"127.0.0.1:{web.port}",), **(quick | settings))
        access = ImageAccess(
            http=http,
            raw=Folder(str(tmp_path / "raw")),
            copies=copy_packs(Lake.at(str(tmp_path / "lake")), ImagesConfig(), FingerprintName.PHASH),
            files="",
            config=ImagesConfig(),
            fingerprint=FingerprintName.PHASH,
        )
        ((_, found),) = obtain_images([f"{web.url}{path}"], access)
        return found.image if isinstance(found, PackedImage) else found

    return call


def reason_of(outcome: Image | Failure) -> Reason:
    assert isinstance(outcome, Failure), outcome
    assert outcome.stage is Stage.IMAGES and outcome.message
    return outcome.reason


JPEG = file_of(Pixels.new("RGB", (40, 30), "red"), "JPEG")
BODIES: dict[str, tuple[bytes, Reason]] = {
    "text bomb": (png(40, 30, before=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(5_000_000), 9))),
        Reason.CORRUPT_IMAGE),
    "page": (b"<!DOCTYPE html><html><body>Over capacity</body></html>", Reason.NOT_AN_IMAGE),
    "half a jpeg": (JPEG[: len(JPEG) // 2], Reason.CORRUPT_IMAGE),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_no_picture_has_its_reason(web, reply, obtain, name: str) -> None:
    body, reason = BODIES[name]
    web.scripts["/x.jpg"] = reply(200, body, content_type="image/jpeg")
    assert reason_of(obtain("/x.jpg")) is reason


def answer(handler: Any, *pieces: bytes, pause_s: float = 0.0) -> None:
    for piece in pieces:
        handler.wfile.write(piece)
        handler.wfile.flush()
        time.sleep(pause_s)
    handler.close_connection = True


def forever(handler: Any, start: bytes, piece: bytes, *, pause_s: float = 0.0) -> None:
    answer(handler, start)
    while True:
        answer(handler, piece, pause_s=pause_s)


ENDLESS = JPEG_HEADER + b"\r\n"
CHUNKED = JPEG_HEADER + b"Transfer-Encoding: chunked\r\n\r\n"
ANSWERS: dict[str, tuple[Callable[[Any], None], Reason]] = {
    "ten gigabytes announced": (
        lambda h: answer(h, JPEG_HEADER + b"Content-Length: %d\r\n\r\n" % TEN_GIGABYTES + JPEG), Reason.TOO_LARGE,
    ),
    "endless without a length": (lambda h: forever(h, ENDLESS, bytes(65_536)), Reason.TOO_LARGE),
    "endless chunks": (lambda h: forever(h, CHUNKED, b"10000\r\n" + bytes(65_536) + b"\r\n"), Reason.TOO_LARGE),
    "a negative length": (
        lambda h: forever(h, JPEG_HEADER + b"Content-Length: -1\r\n\r\n", bytes(65_536)), Reason.CONNECTION_FAILED,
    ),
    "two lengths": (
        lambda h: answer(h, JPEG_HEADER + b"Content-Length: 5\r\nContent-Length: 900\r\n\r\n" + JPEG),
        Reason.CONNECTION_FAILED,
    ),
    "gzip bomb": (
        lambda h: answer(h, JPEG_HEADER + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(90_000_000), 1)),
        Reason.TOO_LARGE,
    ),
    "gzip in gzip": (
        lambda h: answer(h, JPEG_HEADER + b"Content-Encoding: gzip, gzip\r\n\r\n" + gzip.compress(b"")),
        Reason.HTTP_ERROR,
    ),
    "shorter than announced": (
        lambda h: answer(h, JPEG_HEADER + b"Content-Length: %d\r\n\r\n" % (len(JPEG) + 9) + JPEG), Reason.TRUNCATED,
    ),
    "longer than announced": (
        lambda h: answer(h, JPEG_HEADER + b"Content-Length: %d\r\n\r\n" % (len(JPEG) // 2) + JPEG),
        Reason.CORRUPT_IMAGE,
    ),
    "body that drips": (lambda h: forever(h, ENDLESS, b"0", pause_s=0.02), Reason.TIMED_OUT),
    "headers that drip": (lambda h: forever(h, JPEG_HEADER, b"X: 1\r\n", pause_s=0.02), Reason.TIMED_OUT),
    "interim answers for ever": (
        lambda h: forever(h, b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause_s=0.001), Reason.TIMED_OUT,
    ),
    "too many headers": (lambda h: answer(h, JPEG_HEADER + b"X: 1\r\n" * 500 + b"\r\n"), Reason.CONNECTION_FAILED),
    "an endless header": (lambda h: forever(h, JPEG_HEADER + b"X: ", bytes(65_536)), Reason.CONNECTION_FAILED),
    "an endless chunk size": (lambda h: forever(h, CHUNKED, b"0" * 65_536), Reason.CONNECTION_FAILED),
    "an endless trailer": (lambda h: forever(h, CHUNKED + b"0\r\nX: ", b"0" * 65_536), Reason.CONNECTION_FAILED),
    "no HTTP": (lambda h: answer(h, b"\x16\x03\x01 hello\r\n\r\n"), Reason.CONNECTION_FAILED),
    "nothing at all": (lambda h: answer(h, b""), Reason.CONNECTION_FAILED),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_has_its_reason_and_ends_soon(web, obtain, name: str) -> None:
    web.scripts["/x.jpg"], reason = ANSWERS[name]
    web.scripts["/good.jpg"] = lambda handler: answer(handler, ENDLESS + JPEG)
    limit_s = 1.0 if reason is Reason.TIMED_OUT else 60.0  # of a busy machine; what is refused goes on for ever
    assert reason_of(obtain("/x.jpg", total_timeout_s=limit_s)) is reason
    assert isinstance(obtain("/good.jpg"), Image)  # the client goes on


def body_of(transport: Transport, url: str) -> bytes:
    return transport.ask(parse_target(url), {}, budget_s=10.0).body


def test_the_address_that_was_checked_is_the_one_connected_to(web, reply) -> None:
    """A name server that changes its answer: looked up once for a connection, which goes where the check said."""
    web.scripts["/x.jpg"] = reply(200, JPEG, connection="close")
    answers: Iterator[list[str]] = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.1"]])
    book = AddressBook(allow_hosts=[f"127.0.0.1:{web.port}"], lookup=lambda host, port: next(answers))
    url = f"http://turning.example:{web.port}/x.jpg"
    connections = Transport(HttpConfig(), book)
    assert body_of(connections, url) == JPEG
    with pytest.raises(FetchFailed, match=r"127\.0\.0\.2"):
        body_of(connections, url)
    assert len(web.asked) == 1
    assert next(answers) == ["127.0.0.1"]  # one look-up for each connection


PEAK = """
import json, resource, sys
from pathlib import Path
from pipelines.settings import FingerprintName, ImagesConfig
from pipelines.images.inspect import inspect_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found, _ = inspect_image(Path(sys.argv[1]).read_bytes(), config=ImagesConfig(), fingerprint=FingerprintName.PHASH)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"size": [found.width, found.height], "peak_mb": (peak - before) / 1024}))
"""


@pytest.mark.parametrize("worst", ["transparent", "deep"])
def test_the_worst_accepted_picture_takes_twice_its_pixels(tmp_path: Path, worst: str) -> None:
    """Twice four bytes a pixel, and something to spare: 16 megapixels in a small file."""
    side = 4_000
    data = png(side, side, colour=6) if worst == "transparent" else png(side, side, depth=16, colour=0)
    (tmp_path / "bomb.png").write_bytes(data)
    assert len(data) < 300_000
    command = [sys.executable, "-c", PEAK, str(tmp_path / "bomb.png")]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    assert found["size"] == [side, side] and found["peak_mb"] < 2 * 4 * side * side / 2**20 + 60
