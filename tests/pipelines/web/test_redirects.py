"""Redirects over real sockets: where they may lead, and what they may not carry along."""

import pytest

from pipelines.web.requests import FetchFailed, Kind
from schemas.failures import Reason


def fails(client, url, **arguments) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        client.get(url, source="s", kind=Kind.API, **arguments)
    return caught.value


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
    web.scripts["/a"] = reply(302, location="/b")
    web.scripts["/b"] = reply(302, location="/a")
    for step in range(6):
        web.scripts[f"/{step}"] = reply(302, location=f"/{step + 1}")
    web.scripts["/6"] = reply(200, b"end")
    assert fails(client_of(), f"{web.url}/a").reason is Reason.TOO_MANY_REDIRECTS
    assert fails(client_of(), f"{web.url}/0").reason is Reason.TOO_MANY_REDIRECTS
    assert client_of().get(f"{web.url}/1", source="s", kind=Kind.API).entry.status == 200


def test_headers_of_the_caller_stay_with_their_host(web, reply, client_of) -> None:
    web.scripts["/near"] = reply(302, location="/end")
    web.scripts["/far"] = reply(302, location=f"http://other.example:{web.port}/end")
    web.scripts["/end"] = reply(200, b"end")
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
