"""Stores behind URIs: what they are opened with, what is refused, what is written only where nothing else was."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from loopback import Quiet, answering, running

from schemas import stores
from schemas.lake import Folder, Lake, folder_of
from schemas.messages import UsageError


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def at(port: int) -> Folder:
    return Folder(f"s3://bucket/lake?endpoint=http://127.0.0.1:{port}")


def test_an_address_says_where_its_server_is_or_else_the_environment(
    object_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores._store.cache_clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{object_store.removeprefix('endpoint=')}/")
    Folder("s3://lake/own").write("x", b"content")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert Folder(f"s3://lake/own?{object_store}&region=eu-west-3").read("x") == b"content"
    stores._store.cache_clear()


def test_a_profile_has_keys_too(object_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[people]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "people")
    folder = Folder(f"s3://lake/profile?{object_store}")
    folder.write("x", b"content")
    assert folder.read("x") == b"content"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://name:hidden@bucket/lake", "expected a URI without a key; set AWS_ACCESS_KEY_ID"),
        (
            "s3://bucket/lake?secret_key=hidden",
            "unknown option 'secret_key'; expected one of endpoint, region",
        ),
        ("hdfs://host/lake", "hdfs://host: expected a path, or an address that begins with file:, s3:, gs: or az:"),
    ],
)
def test_an_address_that_is_refused(uri: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        Lake.at(uri).check_exists()
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda folder: folder.read("x"),
        lambda folder: folder.open("x"),
        lambda folder: folder.names(),
        lambda folder: folder.write("x", b"content"),
        lambda folder: folder.add("x", b"content"),
        lambda folder: folder.delete("x"),
    ],
)
def test_a_store_that_stays_away_is_an_error_of_input_and_output(
    monkeypatch: pytest.MonkeyPatch, request_of: Callable[[Folder], object]
) -> None:
    monkeypatch.setattr(stores, "ATTEMPTS", 1)
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        with pytest.raises(OSError, match=str(port)) as refusal:
            request_of(at(port))
    assert "\n" not in str(refusal.value) and not isinstance(refusal.value, FileNotFoundError)


@pytest.mark.parametrize("request_of", [lambda folder: folder.names(), lambda folder: folder.write("x", b"content")])
def test_a_bucket_that_is_not_there_is_no_absent_file(
    object_store: str, request_of: Callable[[Folder], object]
) -> None:
    with pytest.raises(OSError, match="NoSuchBucket") as refusal:
        request_of(Folder(f"s3://none/lake?{object_store}"))
    assert "\n" not in str(refusal.value) and not isinstance(refusal.value, FileNotFoundError)


def test_a_permission_that_is_missing_is_told_in_the_store_s_words() -> None:
    """S3 refuses everything where a key has no permission."""
    words = b"<Error><Code>AccessDenied</Code><Message>User is not authorized</Message></Error>"
    with answering(lambda _: (403, words, {})) as port, pytest.raises(PermissionError) as refusal:
        at(port).read("x")
    assert refusal.value.strerror == "AccessDenied: User is not authorized"
    assert str(refusal.value.filename).startswith("s3://bucket/lake")


class _BreakingOff(Quiet):
    """Gives an object in two answers: the first breaks off after half of it."""

    content, asked = b"0123456789" * 1000, list[str]()

    def answer(self) -> None:
        self.asked.append(self.headers.get("Range", ""))
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0] or 0)
        data = self.content[start:]
        self.send_response(206 if "Range" in self.headers else 200)
        for name, value in {
            "Content-Length": str(len(data)),
            "Content-Range": f"bytes {start}-{len(self.content) - 1}/{len(self.content)}",
            "Last-Modified": "Fri, 27 Nov 2026 00:00:00 GMT",
            "ETag": '"tag"',
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2 if len(self.asked) % 2 else None])
        self.close_connection = True


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    with running(ThreadingHTTPServer(("127.0.0.1", 0), _BreakingOff)) as server:
        uri = at(server.server_port).uri
        assert Folder(uri).read("x") == _BreakingOff.content
        assert stores.read_range(uri, "x", 0, 10_000) == _BreakingOff.content
        assert len(_BreakingOff.asked) == 4


class _Conditional(Quiet):
    """Objects with versions, as Google Cloud Storage (generations) and Azure (tags) keep them."""

    kept: ClassVar[dict[str, tuple[bytes, int]]] = {}

    def _answer(self, status: int, data: bytes = b"", number: int = 0) -> None:
        about = {"Last-Modified": "Fri, 27 Nov 2026 00:00:00 GMT", "ETag": f'"{number}"'}
        self.send(status, data, about | {"x-goog-generation": str(number)})

    def answer(self) -> None:
        if self.command == "PUT":
            self._keep()
        else:
            self._answer(200, *self.kept[self.path]) if self.path in self.kept else self._answer(404)

    def _keep(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        number = self.kept.get(self.path, (b"", 0))[1]
        wanted = self.headers.get("x-goog-if-generation-match") or self.headers.get("If-Match", "").strip('"')
        is_new = self.headers.get("If-None-Match") == "*" or wanted == "0"
        if (is_new and number) or (not is_new and wanted != str(number)):
            return self._answer(412)
        self.kept[self.path] = data, number + 1
        return self._answer(201, number=number + 1)


_UNSIGNED = '{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}'


@pytest.fixture(params=["s3", "gs", "az"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    if request.param == "s3":
        yield Folder(f"s3://lake/conditional?{request.getfixturevalue('object_store')}")
        return
    monkeypatch.setattr(_Conditional, "kept", {})
    with running(ThreadingHTTPServer(("127.0.0.1", 0), _Conditional)) as server:
        address = f"127.0.0.1:{server.server_port}"
        for name, value in {
            "GOOGLE_BASE_URL": f"http://{address}",
            "GOOGLE_SERVICE_ACCOUNT_KEY": _UNSIGNED,
            "AZURE_STORAGE_ENDPOINT": f"http://{address}",
            "AZURE_STORAGE_ACCOUNT_NAME": "people",
            "AZURE_SKIP_SIGNATURE": "true",
        }.items():
            monkeypatch.setenv(name, value)
        stores._store.cache_clear()
        yield Folder(f"{request.param}://lake/conditional")
        stores._store.cache_clear()


def test_of_two_writers_one_writes(bucket: Folder) -> None:
    assert bucket.add("x", b"one") and not bucket.add("x", b"two")
    data, version = stores.read_object(bucket.uri, "x")
    assert data == b"one" and stores.write_object(bucket.uri, "x", b"three", version=version)
    assert not stores.write_object(bucket.uri, "x", b"late", version=version)
    bucket.settle("x", b"four")
    assert bucket.read("x") == b"four"
    assert stores.read_object(bucket.uri, "none") == (None, None)


ODD = ["a b#c%.bin", "ü~é.bin", "q[1]{2}'3^.bin", ".hidden", "p%2Fq", "deep/er/x"]


def test_files_of_any_name_are_found_again(object_store: str, tmp_path: Path) -> None:
    for folder in (Folder(f"s3://lake/odd#1?{object_store}"), Folder(str(tmp_path / "odd#1"))):
        for name in ODD:
            folder.write(name, name.encode())
        assert list(folder.files()) == sorted(ODD)
        assert folder.names() == sorted({name.partition("/")[0] for name in ODD})
        for name in ODD:
            there, leaf = folder_of(folder.child(name).uri) if folder.local else (folder, name)
            with there.open(leaf) as stream:
                assert (stream.read(2), stream.seek(-1, os.SEEK_END), stream.read()) == (
                    name.encode()[:2], len(name.encode()) - 1, name.encode()[-1:]
                )  # fmt: skip
        folder.move("deep/er/x", folder.child("moved"))
        folder.child("linked").link("p%2Fq", folder)
        assert folder.exists("moved/deep/er/x") and folder.exists("moved") and not folder.exists("deep/er/x")
        assert folder.child("linked").read("p%2Fq") == b"p%2Fq" and folder.stamp("none") == (0, 0)
        assert folder.stamp(".hidden")[0] == 7 and folder.infos()[".hidden"].mtime_ns > 0
        folder.remove()
        assert not folder.exists() and not list(folder.files())


def test_an_empty_object_is_a_file_but_for_the_mark_of_a_folder(object_store: str) -> None:
    folder = Folder(f"s3://lake/marks?{object_store}")
    folder.write("sub", b"")  # what consoles leave for a folder is an empty object `sub/`; here the two are alike
    assert list(folder.files()) == ["sub"]
    with folder.open("sub") as stream:
        assert stream.read() == b""
    folder.write("sub/x", b"1")
    assert list(folder.files()) == ["sub/x"] and folder.names() == ["sub"]


def test_a_large_object_is_written_in_pieces(object_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_IN_PIECES", 5 << 20)
    folder, data = Folder(f"s3://lake/large?{object_store}"), os.urandom(12 << 20)
    sink = folder.create("x")
    for start in range(0, len(data), 1 << 20):
        sink.stream.write(data[start : start + (1 << 20)])
    assert not folder.exists("x")
    sink.commit()
    with folder.open("x") as stream:
        assert stream.read() == data


def test_a_process_forked_from_one_that_uses_a_store_is_told_so(object_store: str) -> None:
    program = f"""
import os
from schemas.lake import Folder
folder = Folder("s3://lake/fork?{object_store}")
folder.write("x", b"1")
if os.fork() == 0:
    try:
        folder.read("x")
    except OSError as problem:
        print(problem, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "this process was forked" in done.stdout


def test_a_settled_file_is_written_once(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.settle("latest", b"v1\n")
    before = (tmp_path / "latest").stat().st_ino
    folder.settle("latest", b"v1\n")
    assert (tmp_path / "latest").stat().st_ino == before
    folder.settle("latest", b"v2\n")
    assert folder.read("latest") == b"v2\n"


@pytest.mark.parametrize(
    ("uri", "folder", "name"),
    [
        ("s3://bucket/a/x.zst?region=eu-west-1", "s3://bucket/a?region=eu-west-1", "x.zst"),
        ("s3://bucket/x", "s3://bucket", "x"),
        ("/x", "/", "x"),
        ("x?y", "", "x?y"),
    ],
)
def test_the_folder_of_a_file(uri: str, folder: str, name: str) -> None:
    assert folder_of(uri) == (Folder(folder), name)
