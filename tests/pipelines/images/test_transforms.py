"""How an image is obtained: from a folder, from the web, from what was there, under which address, and why not."""

import hashlib
import io
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image as Pixels

from pipelines.images import obtain
from pipelines.images.inspect import PackedImage, copy_packs
from pipelines.images.obtain import Found, ImageAccess, obtain_images
from pipelines.images.transforms import ObtainImages
from pipelines.launch import run_pipeline
from pipelines.settings import FingerprintName, HttpConfig, ImagesConfig, Runner
from pipelines.sources.records import CandidateDocument, CandidateImage
from pipelines.sources.takedowns import parse_takedowns
from schemas.documents import Provenance
from schemas.failures import Failure, Reason
from schemas.lake import Lake


class Quiet(SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path.endswith(".png"):
            self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Serve the folder `site` on loopback; gives its host and port."""
    from loopback import running  # workers import this file, and find no other of the tests

    (tmp_path / "site").mkdir()
    Quiet.asked.clear()
    handler = partial(Quiet, directory=str(tmp_path / "site"))
    with running(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"127.0.0.1:{server.server_port}"


@pytest.fixture
def access(tmp_path: Path, site: str) -> Callable[..., ImageAccess]:
    def make(*takedowns: str, lake: str = "lake", **settings: Any) -> ImageAccess:
        config = ImagesConfig(**settings)
        at = Lake.at(str(tmp_path / lake))
        return ImageAccess(
            http=HttpConfig(allow_hosts=(site,), requests_per_second=1000.0),
            raw=at.raw,
            copies=copy_packs(at, config, FingerprintName.PHASH),
            files=str(tmp_path / "site"),
            config=config,
            fingerprint=FingerprintName.PHASH,
            takedowns=parse_takedowns(map(str.encode, takedowns), name="list"),
        )

    return make


def write_picture(path: Path, *, width: int = 60, height: int = 40) -> str:
    """Write one with something on it; returns the file's SHA-256."""
    levels = np.linspace(0, 255, width).astype(np.uint8)
    Pixels.fromarray(np.broadcast_to(levels, (height, width))).convert("RGB").save(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def seen(found: Found) -> object:
    """Return what does not depend on which pack a copy is in, and on the time."""
    return found.image if isinstance(found, PackedImage) else found


def test_copies_of_files_at_hand_are_looked_up_together(
    tmp_path: Path, access: Callable[..., ImageAccess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, reading them took half the time of a rebuild; what is held meanwhile has a limit."""
    (tmp_path / "site").mkdir(exist_ok=True)
    names = [f"{number}.png" for number in range(12)]
    for number, name in enumerate(names):
        write_picture(tmp_path / "site" / name, width=60 + number)
    (tmp_path / "site" / "5.png").write_bytes(b"no picture")
    monkeypatch.setattr(obtain, "LOOKED_UP", 6)
    first = dict(obtain_images([*names, "absent.png"], access()))
    read, looked_up = obtain.PackFolder.read, list[int]()
    monkeypatch.setattr(obtain.PackFolder, "read", lambda *some: looked_up.append(len(some[1])) or read(*some))
    assert dict(obtain_images([*names, "absent.png"], access())) == first and looked_up == [6, 5]
    monkeypatch.setattr(obtain, "HELD_BYTES", 1)
    looked_up.clear()
    assert dict(obtain_images([*names, "absent.png"], access())) == first and looked_up == [1] * 11
    assert {found.reason for found in first.values() if isinstance(found, Failure)} == {"not-an-image", "not-found"}


def test_a_picture_has_a_copy_and_is_inspected_once(
    tmp_path: Path, site: str, access: Callable[..., ImageAccess], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = write_picture(tmp_path / "site" / "a.png")
    (tmp_path / "site" / "b.png").write_bytes((tmp_path / "site" / "a.png").read_bytes())
    inspected = Mock(side_effect=obtain.inspect_image)
    monkeypatch.setattr(obtain, "inspect_image", inspected)
    uris = [f"http://{site}/a.png", "a.png", "b.png"]
    first = dict(obtain_images(uris, access()))
    assert inspected.call_count == 1
    for uri, found in first.items():
        assert found.copy is not None
        assert (found.image.hash, found.image.width, found.image.source) == (digest, 60, uri)
        assert (found.retrieved is not None) == uri.startswith("http")
    again = dict(obtain_images(uris, access()))
    assert again == first and inspected.call_count == 1 and Quiet.asked == ["/a.png"]
    (ref,) = access().copies.index().find([digest])
    assert ref is not None
    copy = access().copies.read([ref], ["jpeg"])["jpeg"][0].as_py()
    with Pixels.open(io.BytesIO(copy)) as picture:
        assert picture.size == (384, 256)


def test_other_settings_do_not_meet_the_copies_of_these(tmp_path: Path, access: Callable[..., ImageAccess]) -> None:
    write_picture(tmp_path / "site" / "a.png")
    ((_, found),) = obtain_images(["a.png"], access())
    assert isinstance(found, PackedImage)
    ((_, refused),) = obtain_images(["a.png"], access(min_side_px=41))
    assert refused.reason is Reason.TOO_SMALL


def test_each_way_fails_with_its_reason(tmp_path: Path, site: str, access: Callable[..., ImageAccess]) -> None:
    digest = write_picture(tmp_path / "site" / "a.png")
    (tmp_path / "site" / "broken.png").write_bytes((tmp_path / "site" / "a.png").read_bytes()[:60])
    listed = f"sha256:{digest}"
    expected = {
        "a.png": Reason.TAKEN_DOWN,
        "broken.png": Reason.CORRUPT_IMAGE,
        "none.png": Reason.NOT_FOUND,
    }
    for prefix in (f"http://{site}/", ""):
        uris = [f"{prefix}{name}" for name in expected]
        for _ in range(2):
            found = dict(obtain_images(uris, access(listed)))
            assert {uri: (each.record_id, each.reason) for uri, each in found.items()} == {
                f"{prefix}{name}": (f"{prefix}{name}", reason) for name, reason in expected.items()
            }


@pytest.mark.parametrize("workers", [1, 2])
def test_the_stage_gives_what_the_plain_path_gives(
    tmp_path: Path, site: str, access: Callable[..., ImageAccess], workers: int
) -> None:
    for number in range(12):
        write_picture(tmp_path / "site" / f"{number}.png", width=60 + number)
    hosts = (site, f"localhost:{site.partition(':')[2]}")
    uris = [f"http://{host}/{number}.png" for host in hosts for number in range(13)] + ["3.png", "none.png"]
    plain = replace(access(lake="plain"), http=replace(access().http, allow_hosts=hosts))
    expected = [(uri, seen(found)) for uri, found in obtain_images(uris, plain)]
    Quiet.asked.clear()
    stage = ObtainImages(replace(access(), http=plain.http), workers)
    drafts = [
        CandidateDocument(
            str(number), "s", (), tuple(map(CandidateImage, uris[number:])), None, Provenance(source="s", record_id="d")
        )
        for number in range(3)
    ]

    def assemble(root: beam.Pipeline) -> None:
        images = root | beam.Create(drafts) | "images" >> stage
        assert_that(images | beam.Flatten() | beam.MapTuple(lambda uri, each: (uri, seen(each))), equal_to(expected))

    run_pipeline(assemble, runner=Runner.LOCAL, workers=workers)
    assert len(Quiet.asked) == 26


KILLED = """
import os, sys
from dataclasses import replace
from pipelines import raw
from pipelines.images.obtain import ImageAccess, obtain_images
from pipelines.images.inspect import copy_packs
from pipelines.settings import FingerprintName, HttpConfig, ImagesConfig
from schemas.lake import Lake

site, home, count, before = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
raw.AGE_S = 0.0
lake, config = Lake.at(home), ImagesConfig()
http = HttpConfig(allow_hosts=(site,), requests_per_second=1e5, connections_per_host=4)
copies = copy_packs(lake, config, FingerprintName.PHASH)
access = ImageAccess(http=http, raw=lake.raw, copies=copies, files="", config=config, fingerprint=FingerprintName.PHASH)
for number, found in enumerate(obtain_images([f"http://{site}/{n}.png" for n in range(count)], access)):
    if number == before:
        os._exit(9)
"""


@pytest.mark.parametrize(
    "before",
    [0, 7, 23, *(pytest.param(number, marks=pytest.mark.trial) for number in range(1, 36, 2) if number not in (7, 23))],
)
def test_a_worker_that_takes_over_asks_for_what_was_in_the_last_segment_alone(
    tmp_path: Path, site: str, access: Callable[..., ImageAccess], before: int
) -> None:
    """Segments are as short as can be: one of those that were asked for, and those under way, are asked for again."""
    for number in range(40):
        write_picture(tmp_path / "site" / f"{number}.png", width=40 + number)
    home = str(tmp_path / "lake")
    done = subprocess.run([sys.executable, "-c", KILLED, site, home, "40", str(before)], check=False)
    assert done.returncode == 9
    first = Counter(Quiet.asked)
    found = dict(obtain_images([f"http://{site}/{number}.png" for number in range(40)], access()))
    assert all(isinstance(each, PackedImage) for each in found.values())
    again = [path for path, times in Counter(Quiet.asked).items() if times > 1]
    assert len(first) > before and set(first.values()) == {1}
    assert len(again) <= 4 + 1  # connections of the host, and one that was answered but not yet stored


def test_what_is_stored_is_read_by_any_worker(
    tmp_path: Path, site: str, access: Callable[..., ImageAccess], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_picture(tmp_path / "site" / "a.png")
    uris = [f"http://{site}/{name}.png" for name in ("a", "gone", "new")]
    known = dict(obtain_images(uris[:2], access()))
    inspector = obtain.Inspector(access())
    segments = {uri: segment for segment, uri in obtain.locate_stored(uris, access())}
    assert segments[uris[0]] == segments[uris[1]] != "" == segments[uris[2]]
    assert dict(obtain.read_stored(uris, access(), inspector)) == {**known, uris[2]: None}
