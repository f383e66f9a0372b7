"""The client against real sockets: what comes back, what is refused or tried again, and where redirects may lead."""

import gzip
import time
from email.utils import formatdate

import pytest

from pipelines.web.requests import FetchFailed, Kind
from schemas.failures import Reason, Stage

PNG = b"\x89PNG not really"


def fails(client, url, *, kind=Kind.PAGE, **arguments) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        client.get(url, source="s", kind=kind, **arguments)
    return caught.value


def test_an_answer_is_captured_with_its_body_and_an_honest_request(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(200, b"hello", content_type="text/plain", etag='"1"', set_cookie="a=b")
    client = client_of(user_agent="tester/1.0", contact="a@b.example")
    capture = client.get(f"{web.url}/a#part", source="s", kind=Kind.PAGE)
    assert (capture.entry.status, capture.entry.url, capture.final_url) == (200, f"{web.url}/a", f"{web.url}/a")
    assert (capture.entry.media_type, capture.entry.etag) == ("text/plain", '"1"')
    assert (client.body(capture), capture.from_store) == (b"hello", False)
    sent = web.asked[-1][1]
    assert (sent["user-agent"], sent["host"]) == ("tester/1.0 (+a@b.example)", f"127.0.0.1:{web.port}")


def test_gzip_is_undone(web, reply, client_of) -> None:
    web.scripts["/good"] = reply(200, gzip.compress(b"text " * 10), content_encoding="gzip")
    web.scripts["/cut"] = reply(200, gzip.compress(b"text " * 10)[:-12], content_encoding="gzip")
    client = client_of()
    assert client.body(client.get(f"{web.url}/good", source="s", kind=Kind.PAGE)) == b"text " * 10
    assert fails(client, f"{web.url}/cut").reason is Reason.TRUNCATED


@pytest.mark.parametrize(
    ("status", "reason", "requests"),
    [(404, Reason.NOT_FOUND, 1), (410, Reason.NOT_FOUND, 1), (401, Reason.FORBIDDEN, 1), (403, Reason.FORBIDDEN, 1),
     (451, Reason.FORBIDDEN, 1), (400, Reason.HTTP_ERROR, 1), (204, Reason.HTTP_ERROR, 1), (304, Reason.HTTP_ERROR, 1),
     (503, Reason.HTTP_ERROR, 3), (429, Reason.HTTP_ERROR, 3)],
)  # fmt: skip
def test_statuses_are_classified_and_some_tried_again(web, reply, client_of, *, status, reason, requests) -> None:
    web.scripts["/x"] = reply(status)
    problem = fails(client_of(), f"{web.url}/x")
    assert (problem.reason, problem.status) == (reason, status)
    assert web.paths == ["/x"] * requests
    row = problem.failure("doc-1", stage=Stage.SOURCES)
    assert (row.record_id, row.reason, f"{web.url}/x" in row.message) == ("doc-1", reason, True)
    assert ("status" in row.message) == (reason is not Reason.HTTP_ERROR)


def test_retry_after_is_waited_for(web, reply, replies, client_of) -> None:
    slept = []
    busy, later = reply(429, retry_after="7"), reply(503, retry_after=formatdate(1030, usegmt=True))
    web.scripts["/x"] = replies(busy, later, reply(200, b"ok"))
    client = client_of(clock=lambda: 1000.0, sleep=slept.append, requests_per_second=1e6)
    assert client.body(client.get(f"{web.url}/x", source="s", kind=Kind.API)) == b"ok"
    assert [round(seconds) for seconds in slept] == [0, 7, 30]


def test_a_retry_after_that_is_too_long_gives_up(web, reply, client_of) -> None:
    web.scripts["/x"] = reply(429, retry_after="3600")
    assert fails(client_of(), f"{web.url}/x").reason is Reason.HTTP_ERROR
    assert web.paths == ["/x"]


def test_the_byte_cap_is_inclusive(web, reply, client_of) -> None:
    web.scripts["/announced"], web.scripts["/just"] = (reply(200, b"0" * size) for size in (20_001, 20_000))
    client = client_of(max_bytes=20_000)
    assert fails(client, f"{web.url}/announced").reason is Reason.TOO_LARGE
    assert client.get(f"{web.url}/just", source="s", kind=Kind.PAGE).entry.payload_bytes == 20_000


def test_silence_meets_the_read_time_out(web, client_of) -> None:
    web.scripts["/x"] = lambda handler: time.sleep(2)
    client = client_of(read_timeout_s=0.1, attempts=2)
    assert fails(client, f"{web.url}/x", kind=Kind.API).reason is Reason.TIMED_OUT


def test_what_is_no_picture_by_its_type_or_its_address_may_be_one(web, reply, client_of) -> None:
    """A picture that its host mistypes; a page at the address that stands for a removed picture."""
    web.scripts["/mistyped.png"] = reply(200, b"\x89PNG\r\n\x1a\n", content_type="text/html")
    web.scripts["/removed.png"] = reply(200, PNG, content_type="image/png")
    client = client_of()
    assert client.get(f"{web.url}/mistyped.png", source="s", kind=Kind.IMAGE).entry.status == 200
    assert client.get(f"{web.url}/removed.png", source="s", kind=Kind.PAGE).entry.status == 200
    assert fails(client, f"{web.url}/removed.png", kind=Kind.IMAGE).reason is Reason.REMOVED_IMAGE


def test_a_detour_keeps_the_host_header(web, reply, client_of) -> None:
    web.scripts["/x"] = reply(200, b"ok")
    client = client_of(connect_to=(f"imgur.com=127.0.0.1:{web.port}",))
    assert client.get("http://imgur.com/x", source="s", kind=Kind.API).final_url == "http://imgur.com/x"
    assert web.asked[0][1]["host"] == "imgur.com"


def test_redirects_are_followed_to_the_final_url(web, reply, client_of) -> None:
    web.scripts["/a"] = reply(301, location="b?x=1")
    web.scripts["/b?x=1"] = reply(302, location=f"{web.url}/c#part")
    web.scripts["/c"] = reply(200, b"end")
    client = client_of()
    capture = client.get(f"{web.url}/a", source="s", kind=Kind.API)
    assert (capture.entry.url, capture.final_url) == (f"{web.url}/a", f"{web.url}/c")
    assert client.body(capture) == b"end"


INSIDE = (
    "http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:1/a.jpg", "http://[::ffff:169.254.169.254]/",
    "http://2852039166/", "http://localhost:1/", "//192.168.0.1/x",
)  # fmt: skip


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        *((location, Reason.ADDRESS_REFUSED) for location in INSIDE),
        *(
            (location, Reason.INVALID_URL)
            for location in ("ftp://example.org/", "file:///etc/passwd", "http://a:b@127.0.0.1/", "http://[::1")
        ),
        ("", Reason.HTTP_ERROR),
    ],
)
def test_a_redirect_that_is_not_followed_has_its_reason(web, reply, client_of, location, reason) -> None:
    web.scripts["/a"] = reply(302, **({"location": location} if location else {}))
    assert fails(client_of(), f"{web.url}/a").reason is reason
    assert web.paths == ["/a"]


def test_loops_and_long_chains_end(web, reply, client_of) -> None:
    web.scripts |= {"/a": reply(302, location="/b"), "/b": reply(302, location="/a"), "/6": reply(200, b"end")}
    web.scripts |= {f"/{step}": reply(302, location=f"/{step + 1}") for step in range(6)}
    reasons = {fails(client_of(), f"{web.url}{path}").reason for path in ("/a", "/0")}
    assert reasons == {Reason.TOO_MANY_REDIRECTS}
    assert client_of().get(f"{web.url}/1", source="s", kind=Kind.API).entry.status == 200


def test_headers_of_the_caller_stay_with_their_host(web, reply, client_of) -> None:
    web.scripts |= {"/near": reply(302, location="/end"), "/end": reply(200, b"end")}
    web.scripts["/far"] = reply(302, location=f"http://other.example:{web.port}/end")
    client = client_of(connect_to=(f"other.example=127.0.0.1:{web.port}",))
    for path in ("/near", "/far"):
        client.get(f"{web.url}{path}", source="s", kind=Kind.API, headers={"Authorization": "Client-ID secret"})
    carried = [(path, headers["host"].split(":")[0], "authorization" in headers) for path, headers in web.asked]
    assert carried == [
        ("/near", "127.0.0.1", True),
        ("/end", "127.0.0.1", True),
        ("/far", "127.0.0.1", True),
        ("/end", "other.example", False),
    ]
