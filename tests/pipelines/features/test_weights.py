"""Weight files: their form, their digests, and one fetch from a real server."""

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest
from loopback import answering

from pipelines.features.catalogue import (
    extractors,
)
from pipelines.features.values import DOCUMENTS, IMAGES
from pipelines.features.weights import WeightFile, machine_cache, make_once, parse_weights, weight_of
from pipelines.settings import FeaturesConfig, HttpConfig
from schemas.lake import Folder
from schemas.messages import BuildError, ConfigError, IntegrityError, NotFoundError

CONTENT = b"weights" * 1000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[SimpleNamespace]:
    """Serve `/net.pth`; `address` is the server's, `asked` the paths that were asked for."""
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        asked.append(request.path)
        return 200 if request.path == "/net.pth" else 404, CONTENT, {}

    with answering(answer) as port:
        yield SimpleNamespace(address=f"127.0.0.1:{port}", asked=asked)


def test_assignments_are_read() -> None:
    found = parse_weights([f"resnet50=https://host/net.pth#sha256={DIGEST}", "clip = /models/clip.onnx"])
    assert found == {
        "resnet50": WeightFile("resnet50", "https://host/net.pth", DIGEST),
        "clip": WeightFile("clip", "/models/clip.onnx"),
    }
    assert weight_of("clip", found, what="a network").uri == "/models/clip.onnx"


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["resnet50"], r"features\.weights = 'resnet50': expected NAME=URI"),
        (["=file"], "NAME=URI needs a name"),
        (["resnet50="], "NAME=URI needs an address"),
        (["a=x", "a=y"], "a name may be given once"),
        (["a=http://host/net"], "http needs #sha256=HEX"),
        (["a=s3://models/net"], "s3 needs #sha256=HEX"),
        (["a=x#sha256=12"], "sha256 must be 64 lower-case hex digits"),
    ],
)
def test_wrong_assignments_are_one_clear_line(assignments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_weights(assignments)


def test_a_local_file_is_read_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "my weights.pth"
    path.write_bytes(CONTENT)
    assert WeightFile("a", str(path), DIGEST).local() == (path, DIGEST)
    assert WeightFile("a", path.as_uri()).local() == (path, DIGEST)
    with pytest.raises(IntegrityError, match=f"expected SHA-256 {'0' * 64}, .* has {DIGEST}"):
        WeightFile("a", str(path), "0" * 64).local()
    with pytest.raises(NotFoundError, match=r"features\.weights: a: there is no file /no/such\.pth"):
        WeightFile("a", "/no/such.pth").local()
    with pytest.raises(ConfigError, match=r"give --set features\.weights=b=FILE, a checkpoint"):
        weight_of("b", {}, what="a checkpoint")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MULTILINK_CACHE", str(tmp_path))
    return tmp_path


def remote(server: SimpleNamespace, path: str, digest: str = DIGEST) -> WeightFile:
    http = HttpConfig(
        allow_hosts=(server.address,),
        attempts=1,
        obey_robots=False,
        obey_ai_txt=False,
        obey_tdm=False,
    )
    return WeightFile("a", f"http://{server.address}{path}", digest, http)


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("net.pth*") if path.suffix == ".pth"]


def test_a_remote_file_is_fetched_once(server: SimpleNamespace, cache: Path) -> None:
    weight = remote(server, "/net.pth")
    assert server.asked == []
    assert {weight.local() for _ in range(3)} == {(kept(cache)[0], DIGEST)}
    assert server.asked == ["/net.pth"]


def test_a_file_that_was_tampered_with_in_the_cache_is_refused(server: SimpleNamespace, cache: Path) -> None:
    weight = remote(server, "/net.pth")
    weight.local().path.write_bytes(b"weights of another")
    with pytest.raises(IntegrityError, match=f"expected SHA-256 {DIGEST}"):
        weight.local()
    assert kept(cache) == []
    assert weight.local().path.read_bytes() == CONTENT


def test_a_file_that_is_not_the_stated_one_is_not_kept(server: SimpleNamespace, cache: Path) -> None:
    with pytest.raises(IntegrityError, match=f"has {DIGEST}"):
        remote(server, "/net.pth", "0" * 64).local()
    with pytest.raises(BuildError, match="could not be fetched: not-found"):
        remote(server, "/other").local()
    assert kept(cache) == []


def test_an_address_inside_the_network_is_refused(server: SimpleNamespace, cache: Path) -> None:
    with pytest.raises(BuildError, match="could not be fetched: address-refused"):
        WeightFile("a", f"http://{server.address}/net.pth", DIGEST, HttpConfig(obey_robots=False)).local()
    assert server.asked == []


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTILINK_CACHE", "/big/disk")
    assert machine_cache("weights").uri == "/big/disk/weights"
    monkeypatch.delenv("MULTILINK_CACHE")
    assert machine_cache("networks").uri == str(Path.home() / ".cache/multilink/networks")


def test_weights_on_an_object_store_are_fetched_once(object_store: str, cache: Path) -> None:
    folder = Folder(f"s3://lake/models?{object_store}")
    folder.write("net.pth", CONTENT)
    (weight,) = parse_weights([f"a={folder.child('net.pth').uri}#sha256={DIGEST}"]).values()
    path = weight.local().path
    assert path.read_bytes() == CONTENT and path.is_relative_to(cache)
    folder.delete("net.pth")
    assert weight.local() == (path, DIGEST)
    path.unlink()
    with pytest.raises(BuildError, match=r"a: s3://lake/models/net\.pth\?.* could not be fetched"):
        weight.local()


def test_what_a_machine_keeps_is_made_by_one(cache: Path) -> None:
    made, together = list[int](), Barrier(4)

    def make(number: int) -> bytes:
        made.append(number)
        time.sleep(0.2)  # long enough for the others to look
        return b"graph"

    def kept(number: int) -> bytes:
        together.wait(timeout=60)
        return make_once("a.onnx", partial(make, number)).read("a.onnx")

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(kept, range(4))] == [b"graph"] * 4
    assert len(made) == 1


def test_columns_of_one_network_come_from_one_extractor() -> None:
    names = ["grid", "efficientnet-lite0", "efficientnet-lite0-classes", "efficientnet-lite0-grid"]
    (made,) = extractors(names, IMAGES, FeaturesConfig())
    assert [column.name for column in made.columns] == names
    assert len({column.fingerprint for column in made.columns}) == 3  # two names of one grid


def test_an_unknown_name_lists_the_known() -> None:
    for name, table, message in (
        ("resnet51", IMAGES, r"features\.images = 'resnet51': expected one of .*efficientnet-lite0"),
        ("bert", DOCUMENTS, r"features\.sentences = 'bert': expected one of .*use-multilingual"),
    ):
        with pytest.raises(ConfigError, match=message):
            extractors([name], table, FeaturesConfig())
