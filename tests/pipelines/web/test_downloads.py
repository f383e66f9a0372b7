"""Files of any size over a real server: what was interrupted goes on, what changed starts anew, what is there stays."""

import hashlib
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from pipelines.web.downloads import capture_file, file_name
from pipelines.web.requests import FetchFailed
from schemas.failures import Reason

CONTENT = hashlib.shake_256(b"dump").digest(300_000)


def ranged(
    content: bytes, *, breaks: int = 0, at: int = 100_000, etag: str = '"one"', most: int = len(CONTENT)
) -> Callable[..., None]:
    """Serve a file that knows ranges; the first `breaks` answers stop after `at` bytes, parts have at most `most`."""
    left = [breaks]

    def script(handler: BaseHTTPRequestHandler) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        is_same = handler.headers.get("If-Range") in (None, etag)
        start = int(wanted[1]) if wanted and is_same else 0
        end = min(start + most, len(content)) if start else len(content)
        about = {"ETag": etag, "Content-Length": str(max(0, end - start))}
        about |= {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}"} if start else {}
        announce(handler, 416 if start >= len(content) else 206 if start else 200, about)
        if left[0]:
            left[0], end, handler.close_connection = left[0] - 1, start + at, True
        handler.wfile.write(content[start:end])

    return script


def announce(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()


def asked(web: Any) -> list[str | None]:
    return [headers.get("range") for path, headers in web.asked if path == "/f" or path.startswith("/d/")]


def test_a_file_is_captured_once(web: Any, client_of: Any) -> None:
    web.scripts["/d/RS_2018-01.zst"] = ranged(CONTENT)
    client = client_of(max_bytes=1000)  # the cap of small bodies has no say
    first = capture_file(client, f"{web.url}/d/RS_2018-01.zst")
    assert (first.path.name, first.path.read_bytes()) == ("RS_2018-01.zst", CONTENT)
    assert capture_file(client_of(), f"{web.url}/d/RS_2018-01.zst") == first  # its time, too, is that of the capture
    assert asked(web) == [None]


def test_what_breaks_off_goes_on_where_it_stopped(web: Any, client_of: Any) -> None:
    web.scripts["/f"] = ranged(CONTENT, breaks=2)
    assert capture_file(client_of(attempts=1), f"{web.url}/f").path.read_bytes() == CONTENT
    assert asked(web) == [None, "bytes=100000-", "bytes=200000-"]


def test_a_later_run_goes_on_too(web: Any, client_of: Any) -> None:
    broken = ranged(CONTENT, breaks=1)
    web.scripts["/f"] = lambda handler: (broken(handler), web.scripts.pop("/f"))
    with pytest.raises(FetchFailed, match=Reason.NOT_FOUND):
        capture_file(client_of(attempts=1), f"{web.url}/f")
    web.scripts["/f"] = ranged(CONTENT)
    assert capture_file(client_of(), f"{web.url}/f").path.read_bytes() == CONTENT
    assert asked(web)[-1] == "bytes=100000-"


REST = CONTENT[100_000:200_000]


@pytest.mark.parametrize("total", ["*", "9" * 400, "3", "other", "short", "none"])
def test_a_part_of_another_file_is_thrown_away(web: Any, client_of: Any, reply: Any, replies: Any, total: str) -> None:
    """The second answer is a part of no known whole, of another edition, of a shorter one, or has no range."""
    odd = reply(206, REST, content_range=f"bytes 100000-199999/{total}")
    editions = {"other": ranged(CONTENT[::-1], etag='"two"'), "short": ranged(CONTENT[:50_000])}
    rest = [editions[total]] if total in editions else [*([odd] if total != "none" else []), reply(200, CONTENT)]
    web.scripts["/f"] = replies(ranged(CONTENT, breaks=1), *rest)
    expected = {"other": CONTENT[::-1], "short": CONTENT[:50_000]}.get(total, CONTENT)
    attempts = 1 if total in editions else 3
    assert capture_file(client_of(attempts=attempts), f"{web.url}/f").path.read_bytes() == expected


def test_a_slice_of_what_was_asked_for_does_not_end_the_file(web: Any, client_of: Any) -> None:
    """A cache between may answer with a part of the rest: the total says what is missing."""
    web.scripts["/f"] = ranged(CONTENT, breaks=1, at=40_000, most=40_000)
    assert capture_file(client_of(attempts=1), f"{web.url}/f").path.read_bytes() == CONTENT
    assert len(asked(web)) == 8


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
    assert len(asked(web)) == 3


def test_a_host_without_conditional_answers_is_not_read_to_the_end(web: Any, client_of: Any) -> None:
    """Its second answer breaks off, which nobody sees."""
    sent = iter([CONTENT, CONTENT[:1000]])

    def always(handler: BaseHTTPRequestHandler) -> None:
        about = {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Content-Length": str(len(CONTENT))}
        announce(handler, 200, about)
        handler.wfile.write(next(sent))

    web.scripts["/f"] = always
    first = capture_file(client_of(**at(1e6)), f"{web.url}/f")
    again = capture_file(client_of(**at(1e6 + 2 * DAY_S)), f"{web.url}/f")
    assert again == first and again.path.read_bytes() == CONTENT and len(asked(web)) == 2


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
        announce(handler, 200, {"Content-Length": str(len(CONTENT))} if announces else {})
        handler.close_connection = not announces
        handler.wfile.write(CONTENT)

    web.scripts["/f"] = script
    with pytest.raises(FetchFailed, match=rf"{Reason.TOO_LARGE}.* http\.max_file_bytes = 1000"):
        capture_file(client_of(max_file_bytes=1000), f"{web.url}/f")
    assert len(asked(web)) == 1


def test_robots_have_a_say(web: Any, client_of: Any, reply: Any) -> None:
    web.scripts["/robots.txt"] = reply(200, b"User-agent: *\nDisallow: /", content_type="text/plain")
    client = client_of()
    with pytest.raises(FetchFailed, match=Reason.ROBOTS_DENIED):
        capture_file(client, f"{web.url}/f")
    assert len(list((client.raw.local / "robots" / "index").iterdir())) == 1  # no segment is left open


def test_nothing_half_is_ever_under_the_files_name(web: Any, client_of: Any, tmp_path: Path) -> None:
    web.scripts["/f"] = ranged(CONTENT, breaks=9, at=0)
    with pytest.raises(FetchFailed):
        capture_file(client_of(attempts=2), f"{web.url}/f")
    assert [path.name for path in (tmp_path / "raw" / "files").rglob("f")] == []


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
