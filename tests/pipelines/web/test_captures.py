"""The raw store: one request for one thing, whoever asks, however often, and whatever is interrupted."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import pipelines
from pipelines.settings import HttpConfig
from pipelines.web.captures import Kind
from pipelines.web.client import process_client
from pipelines.web.errors import FetchFailed
from schemas.errors import IntegrityError
from schemas.failures import Reason
from schemas.lake import Folder


def get(client, url, kind=Kind.API, **arguments):
    return client.get(url, source="s", kind=kind, **arguments)


def test_a_second_client_asks_for_nothing(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"hello")
    first = get(client_of(), f"{web.url}/a")
    again = client_of()
    second = get(again, f"{web.url}/a")
    assert second.from_store and again.body(second) == b"hello"
    assert (second.fetched_at, second.body_sha256) == (first.fetched_at, first.body_sha256)
    assert web.paths == ["/a"]


def test_permanent_failures_are_remembered_and_equal_the_first_time(web, reply, client_of) -> None:
    web.scripts["/gone.jpg"] = reply(302, location="/removed.png")
    seen = []
    for path in ("/nothing", "/gone.jpg"):
        for _ in range(2):
            with pytest.raises(FetchFailed) as caught:
                get(client_of(), f"{web.url}{path}", Kind.IMAGE)
            seen.append(caught.value.args)
    assert seen[0] == seen[1] and seen[2] == seen[3]
    assert web.paths == ["/nothing", "/gone.jpg"]


@pytest.mark.parametrize("status", [500, 429, 418])
def test_a_host_that_failed_is_left_alone_for_a_while(web, reply, client_of, status) -> None:
    web.scripts["/a"] = reply(status)
    patience: dict[str, float] = {"attempts": 1, "retry_failures_after_s": 600.0}
    for now in (1_000_000.0, 1_000_599.0):
        with pytest.raises(FetchFailed):
            get(client_of(clock=partial(float, now), **patience), f"{web.url}/a")
    assert web.paths == ["/a"]
    web.scripts["/a"] = reply(200, b"now")
    assert get(client_of(clock=partial(float, 1_000_601.0), **patience), f"{web.url}/a").status == 200


def test_a_host_that_could_not_be_reached_is_asked_again(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"now")
    closed = "127.0.0.1:9"
    with pytest.raises(FetchFailed, match="connection-failed"):
        get(client_of(attempts=1, connect_to=(f"a.test={closed}",), allow_hosts=(closed,)), "http://a.test/a")
    address = f"127.0.0.1:{web.port}"
    reached = client_of(connect_to=(f"a.test={address}",), allow_hosts=(address,))
    assert get(reached, "http://a.test/a").status == 200


def test_wrong_credentials_are_not_remembered_and_none_are_stored(web, reply, client_of, tmp_path) -> None:
    web.scripts["/a"] = reply(403)
    with pytest.raises(FetchFailed) as caught:
        get(client_of(), f"{web.url}/a", headers={"Authorization": "wrong-key"})
    assert caught.value.reason is Reason.FORBIDDEN
    web.scripts["/a"] = reply(200, b"now")
    get(client_of(), f"{web.url}/a", headers={"Authorization": "right-key"})
    stored = [path.read_bytes() for path in (tmp_path / "raw").rglob("*") if path.is_file()]
    assert stored and not any(b"-key" in content for content in stored)


def test_a_refused_address_is_asked_again_once_it_is_allowed(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"ok")
    with pytest.raises(FetchFailed, match="address-refused"):
        get(client_of(allow_hosts=()), f"{web.url}/a")
    assert get(client_of(), f"{web.url}/a").status == 200


def test_too_large_holds_for_its_limit_alone(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"0" * 200)
    for _ in range(2):
        with pytest.raises(FetchFailed, match="too-large"):
            get(client_of(max_bytes=100), f"{web.url}/a")
    assert web.paths == ["/a"]
    assert get(client_of(max_bytes=300), f"{web.url}/a").body_bytes == 200


def test_an_old_capture_is_asked_for_again(web, reply, replies, client_of) -> None:
    web.scripts["/a"] = replies(reply(200, b"old"), reply(200, b"new"))
    now = 1000.0
    client = client_of(clock=lambda: now)
    bodies = []
    for now in (1000.0, 1059.0, 1061.0):  # noqa: B007 - the client's clock reads it
        bodies.append(client.body(get(client, f"{web.url}/a", max_age_s=60.0)))
    assert bodies == [b"old", b"old", b"new"]
    assert client.body(get(client, f"{web.url}/a")) == b"new"


def test_kinds_and_sources_are_kept_apart(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"<p>", content_type="text/html")
    client = client_of()
    assert get(client, f"{web.url}/a", Kind.PAGE).status == 200
    with pytest.raises(FetchFailed, match="not-an-image"):
        get(client, f"{web.url}/a", Kind.IMAGE)


def test_a_process_killed_while_it_writes_leaves_no_capture(web, reply, client_of, monkeypatch) -> None:
    web.scripts["/a"] = reply(200, b"hello")

    def dying(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", dying)
        get(client_of(), f"{web.url}/a")
    assert not get(client_of(), f"{web.url}/a").from_store
    assert get(client_of(), f"{web.url}/a").from_store
    assert web.paths == ["/a", "/a"]


def only_capture(folder: Path) -> Path:
    (path,) = (path for path in (folder / "raw" / "s" / "captures").rglob("*") if path.is_file())
    return path


@pytest.mark.parametrize("size", [5, 100_000])
def test_changed_bytes_are_noticed(web, reply, client_of, tmp_path, size) -> None:
    """Of a body that is read with its first line, and of one that is read by itself."""
    web.scripts["/a"] = reply(200, b"h" * size)
    assert client_of().body(get(client_of(), f"{web.url}/a")) == b"h" * size
    path = only_capture(tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"u")
    with pytest.raises(IntegrityError, match=path.name):
        client_of().body(get(client_of(), f"{web.url}/a"))
    path.unlink()
    assert not get(client_of(), f"{web.url}/a").from_store


@pytest.mark.parametrize("left", [0, 20, 400, -1])
def test_what_a_power_cut_cut_short_is_fetched_again(web, reply, client_of, tmp_path, left) -> None:
    """Empty, within the first line, within the body, and all but the last byte."""
    web.scripts["/a"] = reply(200, b"hello" * 100)
    get(client_of(), f"{web.url}/a")
    path = only_capture(tmp_path)
    path.write_bytes(path.read_bytes()[:left])
    again = client_of()
    capture = get(again, f"{web.url}/a")
    assert not capture.from_store and again.body(capture) == b"hello" * 100
    assert get(client_of(), f"{web.url}/a").from_store


def test_a_first_line_may_be_longer_than_one_reading(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"hello\nyou", etag="e" * 60_000, content_language="x" * 60_000)
    get(client_of(), f"{web.url}/a")
    capture = get(client_of(), f"{web.url}/a")
    assert capture.from_store and len(capture.headers["etag"]) == 60_000
    assert client_of().body(capture) == b"hello\nyou"


def test_the_layout_is_the_documented_one(web, reply, client_of, tmp_path) -> None:
    web.scripts["/a"] = reply(200, b"he\nllo", content_type="text/plain")
    digest = get(client_of(), f"{web.url}/a").body_sha256
    path = only_capture(tmp_path)
    assert (path.parent.name, path.parents[1].name, len(path.name)) == (path.name[:2], "captures", 64)
    line, _, body = path.read_bytes().partition(b"\n")
    assert body == b"he\nllo" and hashlib.sha256(body).hexdigest() == digest
    record = json.loads(line)
    assert sorted(record) == ["body_bytes", "body_sha256", "fetched_at", "final_url", "headers", "status", "url"]
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == [".locks", ".schedules", "s"]
    assert (tmp_path / "raw" / ".locks").stat().st_size == 0


def slow(handler) -> None:
    time.sleep(0.2)
    handler.send_response(200)
    handler.send_header("Content-Length", "2")
    handler.end_headers()
    handler.wfile.write(b"ok")


def test_threads_share_one_request(web, client_of) -> None:
    web.scripts["/a"] = slow
    clients = [client_of(), client_of()]
    with ThreadPoolExecutor(8) as pool:
        captures = list(pool.map(lambda index: get(clients[index % 2], f"{web.url}/a"), range(8)))
    assert web.paths == ["/a"]
    assert sum(not capture.from_store for capture in captures) == 1


FETCH = """
import sys
from pipelines.settings import HttpConfig
from pipelines.web.captures import Kind
from pipelines.web.client import Client
from schemas.lake import Folder
raw, url, allowed = sys.argv[1:]
Client(HttpConfig(allow_hosts=(allowed,)), Folder(raw)).get(url, source="s", kind=Kind.API)
"""


def test_processes_share_one_request(web, tmp_path) -> None:
    web.scripts["/a"] = slow
    command = [sys.executable, "-c", FETCH, str(tmp_path / "raw"), f"{web.url}/a", f"127.0.0.1:{web.port}"]
    root = Path(pipelines.__file__).parents[1]
    processes = [subprocess.Popen(command, cwd=root) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert web.paths == ["/a"]


def test_a_process_has_one_client(tmp_path) -> None:
    config, raw = HttpConfig(), Folder(str(tmp_path))
    made = []
    threads = [threading.Thread(target=lambda: made.append(process_client(config, raw))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, made))) == 1
