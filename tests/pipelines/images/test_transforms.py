"""Where an image is inspected: as it comes, or later where its file is large or was there already."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image as Pixels

from pipelines.images.obtain import HELD_BYTES, ImagePlaces, obtain_image, obtain_images
from pipelines.images.store import ImageStore, stored_copies
from pipelines.images.transforms import ObtainImages, Outcome
from pipelines.launch import Runner, run_pipeline
from pipelines.progress import Progress
from pipelines.settings import FingerprintName, HttpConfig, ImagesConfig
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.takedowns import parse_takedowns
from schemas.documents import Provenance
from schemas.failures import Failure, Reason
from schemas.images import Image
from schemas.lake import Lake


class Quiet(SimpleHTTPRequestHandler):
    asked_at: ClassVar[list[float]] = []  # of pictures

    def do_GET(self) -> None:
        if self.path.endswith(".png"):
            self.asked_at.append(time.monotonic())
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Serve the folder `site` on loopback; gives its host and port."""
    (tmp_path / "site").mkdir()
    Quiet.asked_at.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "site"))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def stage_of(tmp_path: Path, host: str, *takedowns: str, rate: float = 1000.0, **settings: int) -> ObtainImages:
    counts = tmp_path / "counts"
    counts.mkdir(parents=True, exist_ok=True)
    lake = Lake.at(str(tmp_path / "lake"))
    http = HttpConfig(allow_hosts=(host,), requests_per_second=rate)
    places = ImagePlaces(http=http, raw=lake.raw, store=ImageStore(stored_copies(lake, 90)), files="")
    config, progress = ImagesConfig(**settings), Progress(str(counts))
    return ObtainImages(
        places, config, FingerprintName.PHASH, parse_takedowns(map(str.encode, takedowns), name="list"), progress
    )


def write_picture(path: Path, *, width: int, height: int) -> str:
    """Write one with something on it; returns the file's SHA-256."""
    levels = np.linspace(0, 255, width).astype(np.uint8)
    Pixels.fromarray(np.broadcast_to(levels, (height, width))).convert("RGB").save(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def come(stage: ObtainImages, uri: str) -> Outcome:
    _, fetched = stage.fetch(uri)
    assert fetched is not None
    return stage.keep(uri, fetched)


def test_what_comes_is_inspected_at_once_and_what_was_there_later(tmp_path: Path, site: str) -> None:
    digest = write_picture(tmp_path / "site" / "a.png", width=60, height=40)
    stage, uri = stage_of(tmp_path, site), f"http://{site}/a.png"
    _, fresh = come(stage, uri)
    assert isinstance(fresh, Image) and (fresh.hash, fresh.width, fresh.source) == (digest, 60, uri)
    assert stage.places.store.exists(digest)
    assert stage.fetch(uri) == (uri, None)
    assert stage.inspect(uri) == (uri, fresh)
    assert stage.progress.counts() == {"captures": 2, "images": 2}


def test_a_large_file_is_left_for_later(tmp_path: Path, site: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 700, 3), np.uint8)
    path = tmp_path / "site" / "large.png"
    Pixels.fromarray(noise).save(path)
    assert path.stat().st_size > HELD_BYTES
    stage, uri = stage_of(tmp_path, site), f"http://{site}/large.png"
    assert stage.fetch(uri) == (uri, None)
    _, image = stage.inspect(uri)
    assert isinstance(image, Image) and (image.width, image.height) == (700, 600)
    assert len(Quiet.asked_at) == 1


def test_images_come_as_one_by_one_wherever_they_are(tmp_path: Path, site: str) -> None:
    """Those of the web, of a folder, stored before, and none at all."""
    for number in range(30):
        write_picture(tmp_path / "site" / f"{number}.png", width=60 + number, height=40)
    places = replace(stage_of(tmp_path, site).places, files=str(tmp_path / "site"))
    uris = [f"http://{site}/{number}.png" for number in range(32)] + [f"{number}.png" for number in range(32)]
    settings = {"config": ImagesConfig(), "fingerprint": FingerprintName.PHASH}
    for uri in uris[::5]:
        obtain_image(uri, places=places, **settings)
    together = dict(obtain_images(uris, places=places, **settings, threads=3))
    assert together == {uri: obtain_image(uri, places=places, **settings) for uri in uris}
    assert sum(isinstance(found, Image) for found in together.values()) == 60


def test_each_way_fails_with_its_reason(tmp_path: Path, site: str) -> None:
    digest = write_picture(tmp_path / "site" / "a.png", width=60, height=40)
    (tmp_path / "site" / "broken.png").write_bytes((tmp_path / "site" / "a.png").read_bytes()[:60])
    banned = f"http://{site}/banned.png"
    stage = stage_of(tmp_path, site, f"sha256:{digest}", f"url:{banned}")
    reasons = {}
    for name in ("a.png", "broken.png", "none.png", "banned.png"):
        uri = f"http://{site}/{name}"
        _, failure = come(stage, uri)
        assert isinstance(failure, Failure) and failure.record_id == uri
        reasons[name] = failure.reason
        _, again = stage.inspect(uri)
        assert again == failure
    assert reasons == {
        "a.png": Reason.TAKEN_DOWN,
        "broken.png": Reason.CORRUPT_IMAGE,
        "none.png": Reason.NOT_FOUND,
        "banned.png": Reason.TAKEN_DOWN,
    }


def test_two_workers_share_a_host_and_its_pace(tmp_path: Path, site: str) -> None:
    uris = [f"http://{site}/{number}.png" for number in range(24)]
    for number in range(24):
        write_picture(tmp_path / "site" / f"{number}.png", width=60 + number, height=40)
    alone = stage_of(tmp_path / "alone", site)
    expected = [come(alone, uri) for uri in uris]
    Quiet.asked_at.clear()

    stage = replace(stage_of(tmp_path / "shared", site, rate=25.0), neighbours=2)
    drafts = [CandidateDocument("d", "s", (), tuple(uris), None, Provenance(source="s", record_id="d"))]

    def assemble(root: beam.Pipeline) -> None:
        assert_that(root | beam.Create(drafts) | "images" >> stage, equal_to(expected))

    run_pipeline(assemble, runner=Runner.LOCAL, workers=2)
    assert len(Quiet.asked_at) == 24
    assert max(Quiet.asked_at) - min(Quiet.asked_at) > 23 / 25 - 0.2  # two paces would take half of it
    assert len(list((tmp_path / "shared" / "counts").glob("captures.*"))) == 2  # a file for each process


@pytest.mark.parametrize(("neighbours", "connections", "shares"), [(1, 4, 1), (2, 4, 2), (8, 4, 4), (8, 1, 1)])
def test_a_share_has_a_connection_at_least(tmp_path: Path, neighbours: int, connections: int, shares: int) -> None:
    stage = replace(stage_of(tmp_path, "a.example:80"), neighbours=neighbours)
    http = replace(stage.places.http, connections_per_host=connections)
    assert replace(stage, places=replace(stage.places, http=http)).shares == shares
