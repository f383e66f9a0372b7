"""Stores behind URIs: what they are opened with, what is refused. Conditional requests: `tests/cluster`."""

import pickle
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow.fs as pafs
import pytest

from schemas import stores
from schemas.errors import UsageError
from schemas.lake import Folder, Lake
from schemas.stores import S3_ATTEMPTS, open_store


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def options_of(filesystem: pafs.FileSystem) -> dict[str, object]:
    plain = pafs.S3FileSystem.__reduce__(filesystem)[1][0]
    return {name: plain[name] for name in ("region", "scheme", "endpoint_override", "allow_delayed_open")}


def test_a_uri_says_where_its_server_is() -> None:
    opened, path = open_store("s3://uri/lake/deep/?endpoint_override=127.0.0.1:1&scheme=http&region=eu-west-3")
    where = {"region": "eu-west-3", "scheme": "http", "endpoint_override": "127.0.0.1:1", "allow_delayed_open": True}
    assert path == "uri/lake/deep"
    assert options_of(opened) == where
    sent = pickle.loads(pickle.dumps(opened))
    assert type(sent) is type(opened) and options_of(sent) == where


def test_the_environment_says_it_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://10.0.0.2:7070")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-1")
    opened, path = open_store("s3://environment/lake")
    assert path == "environment/lake"
    assert options_of(opened) == {
        "region": "us-west-1", "scheme": "http", "endpoint_override": "10.0.0.2:7070", "allow_delayed_open": True
    }  # fmt: skip
    assert S3_ATTEMPTS > 3  # pyarrow's own give up within seconds


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://name:hidden@bucket/lake", "a URI holds no key; set AWS_ACCESS_KEY_ID"),
        (
            "s3://bucket/lake?secret_key=hidden",
            "unknown option 'secret_key'; expected one of endpoint_override, region",
        ),
    ],
)
def test_a_key_in_a_uri_is_refused_and_not_repeated(uri: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        Lake.at(uri).check_exists()
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda folder: folder.read("x"),
        lambda folder: folder.read_end("x", 8),
        lambda folder: folder.write("x", b"content"),
        lambda folder: folder.add("x", b"content"),
        lambda folder: folder.delete("x"),
    ],
)
def test_a_store_that_stays_away_is_an_error_of_input_and_output(
    monkeypatch: pytest.MonkeyPatch, request_of: Callable[[Folder], object]
) -> None:
    monkeypatch.setattr(stores, "S3_ATTEMPTS", 1)
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        with pytest.raises(OSError, match="Could not connect"):
            request_of(Folder(f"s3://bucket/lake?endpoint_override=127.0.0.1:{port}&scheme=http"))


class _BreakingOff(BaseHTTPRequestHandler):
    """Gives an object in two answers: the first breaks off after half of it."""

    content, asked = b"0123456789" * 1000, list[str]()

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Range", ""))
        self.send_response(206)
        for name, value in {
            "Content-Length": str(len(self.content)),
            "Content-Range": f"bytes 0-{len(self.content) - 1}/{len(self.content)}",
            "ETag": '"tag"',
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.content[: len(self.content) // 2 if len(self.asked) % 2 else None])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _BreakingOff)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        folder = Folder(f"s3://bucket/lake?endpoint_override=127.0.0.1:{server.server_port}&scheme=http")
        assert folder.read("x") == _BreakingOff.content
        assert folder.read_end("x", 100_000) == (_BreakingOff.content, 10_000)
        assert _BreakingOff.asked == ["", "", "bytes=-100000", "bytes=-100000"]
    finally:
        server.shutdown()
        server.server_close()


def test_a_lake_on_s3_is_read_and_written_without_boto3(object_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(f"s3://lake/read?{object_store}")
    folder.write("x", b"content")
    assert folder.read("x") == b"content"
    monkeypatch.setattr("schemas.lake.has_client", lambda: False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    stores._client.cache_clear()
    assert folder.read("x") == b"content"
    assert folder.read_end("x", 3) == (b"ent", 7) and folder.read_piece("x", 1, 4) == b"onte"
    folder.write("z", b"other")
    assert folder.read("z") == b"other"
    for name in ("y", "x/y"):
        with pytest.raises(FileNotFoundError):
            folder.read(name)


def test_a_settled_file_is_written_once(tmp_path: pytest.TempPathFactory) -> None:
    folder = Folder(str(tmp_path))
    folder.settle("latest", b"v1\n")
    before = (folder.local / "latest").stat().st_ino if folder.local else 0
    folder.settle("latest", b"v1\n")
    assert (folder.local / "latest").stat().st_ino == before if folder.local else False
    folder.settle("latest", b"v2\n")
    assert folder.read("latest") == b"v2\n"
