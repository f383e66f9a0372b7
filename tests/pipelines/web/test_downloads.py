"""Files of any size over a real server: what breaks off begins again; a file that is there is asked about first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from pipelines.web.downloads import capture_file, file_name
from pipelines.web.requests import FetchFailed
from schemas.failures import Reason

CONTENT = hashlib.shake_256(b"dump").digest(300_000)


def breaking(content: bytes, *, breaks: int) -> Callable[..., None]:
    """Serve a file of which the first answers stop after some bytes."""
    left = [breaks]

    def script(handler: BaseHTTPRequestHandler) -> None:
        is_broken, left[0] = left[0] > 0, left[0] - 1
        handler.send_response(200)
        handler.send_header("ETag", '"one"')
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: 100_000 if is_broken else None])
        handler.close_connection = is_broken

    return script


def asked(web: Any) -> int:
    return sum(path == "/f" or path.startswith("/d/") for path, _ in web.asked)


def test_a_file_is_captured_once(web: Any, client_of: Any) -> None:
    web.scripts["/d/RS_2018-01.zst"] = breaking(CONTENT, breaks=0)
    client = client_of(max_bytes=1000)  # the cap of small bodies has no say
    first = capture_file(client, f"{web.url}/d/RS_2018-01.zst")
    assert first.path.name == "RS_2018-01.zst"
    assert first.path.read_bytes() == CONTENT
    assert capture_file(client_of(), f"{web.url}/d/RS_2018-01.zst") == first  # its time, too, is that of the capture
    assert asked(web) == 1


@pytest.mark.parametrize("breaks", [2, 3])
def test_what_breaks_off_begins_again_and_nothing_half_is_ever_there(
    web: Any, client_of: Any, tmp_path: Path, breaks: int
) -> None:
    web.scripts["/f"] = breaking(CONTENT, breaks=breaks)
    if breaks < 3:
        assert capture_file(client_of(attempts=3), f"{web.url}/f").path.read_bytes() == CONTENT
    else:
        with pytest.raises(FetchFailed) as caught:
            capture_file(client_of(attempts=3), f"{web.url}/f")
        assert caught.value.reason is Reason.TRUNCATED
        left = [path.name for path in (tmp_path / "raw" / "files").rglob("f*")]
        assert left == ["f.lock"]
    assert asked(web) == 3


def test_a_host_that_says_unchanged_of_a_file_that_is_not_there(web: Any, client_of: Any, reply: Any) -> None:
    web.scripts["/f"] = reply(304)
    with pytest.raises(FetchFailed) as caught:
        capture_file(client_of(), f"{web.url}/f")
    assert caught.value.reason is Reason.HTTP_ERROR


DAY_S = 86_400.0


def at(moment: float) -> dict[str, Any]:
    return {"clock": lambda: moment, "attempts": 1}


def test_the_next_day_a_file_is_asked_about_and_kept_or_fetched_anew(web: Any, client_of: Any, reply: Any) -> None:
    web.scripts["/f"] = reply(200, b"monday", etag='"1"')
    first = capture_file(client_of(**at(1e6)), f"{web.url}/f")
    assert capture_file(client_of(**at(1e6 + DAY_S - 1)), f"{web.url}/f") == first
    web.scripts["/f"] = reply(304)
    assert capture_file(client_of(**at(1e6 + DAY_S + 1)), f"{web.url}/f") == first
    assert web.asked[-1][1]["if-none-match"] == '"1"'
    assert capture_file(client_of(**at(1e6 + 2 * DAY_S)), f"{web.url}/f") == first
    web.scripts["/f"] = reply(200, b"thursday", etag='"2"')
    later = capture_file(client_of(**at(1e6 + 3 * DAY_S + 2)), f"{web.url}/f")
    assert later.path.read_bytes() == b"thursday" and later.fetched_at > first.fetched_at
    assert asked(web) == 3


def test_a_host_without_conditional_answers_is_not_read_to_the_end(web: Any, client_of: Any) -> None:
    """Its second answer breaks off, which nobody sees."""
    sent = iter([CONTENT, CONTENT[:1000]])

    def always(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(next(sent))

    web.scripts["/f"] = always
    first = capture_file(client_of(**at(1e6)), f"{web.url}/f")
    again = capture_file(client_of(**at(1e6 + 2 * DAY_S)), f"{web.url}/f")
    assert again == first and again.path.read_bytes() == CONTENT and asked(web) == 2


def test_a_host_in_trouble_leaves_the_file_that_is_there(web: Any, client_of: Any, reply: Any) -> None:
    web.scripts["/f"] = reply(200, b"monday", etag='"1"')
    first = capture_file(client_of(**at(1e6)), f"{web.url}/f")
    web.scripts["/f"] = reply(503)
    assert capture_file(client_of(**at(1e6 + 2 * DAY_S)), f"{web.url}/f") == first
    web.scripts["/f"] = reply(404)
    with pytest.raises(FetchFailed, match="not-found"):
        capture_file(client_of(**at(1e6 + 2 * DAY_S)), f"{web.url}/f")


@pytest.mark.parametrize("announces", [True, False])
def test_a_file_has_a_limit_of_its_own(web: Any, client_of: Any, announces: bool) -> None:
    def script(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if announces:
            handler.send_header("Content-Length", str(len(CONTENT)))
        else:
            handler.close_connection = True
        handler.end_headers()
        handler.wfile.write(CONTENT)

    web.scripts["/f"] = script
    with pytest.raises(FetchFailed, match=r"http\.max_file_bytes = 1000") as caught:
        capture_file(client_of(max_file_bytes=1000), f"{web.url}/f")
    assert caught.value.reason is Reason.TOO_LARGE
    assert asked(web) == 1


def test_robots_have_a_say(web: Any, client_of: Any, reply: Any) -> None:
    web.scripts["/robots.txt"] = reply(200, b"User-agent: *\nDisallow: /", content_type="text/plain")
    client = client_of()
    with pytest.raises(FetchFailed) as caught:
        capture_file(client, f"{web.url}/f")
    assert caught.value.reason is Reason.ROBOTS_DENIED
    assert len(list((client.raw.local / "robots" / "index").iterdir())) == 1  # no segment is left open


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/RS_2018-01.zst?x=1", "RS_2018-01.zst"),
        ("https://h/a%2Fb/..%2f..%2fetc%2Fpasswd", "_.._etc_passwd"),
        ("https://h/", "file"),
        ("https://h/...", "file"),
    ],
)
def test_names_are_plain(url: str, name: str) -> None:
    assert file_name(url) == name
