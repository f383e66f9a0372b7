import pytest

from pipelines.web.errors import FetchFailed
from pipelines.web.targets import parse_target, redirected
from schemas.failures import Reason


@pytest.mark.parametrize(
    ("url", "spelling", "host", "port"),
    [
        ("http://Example.ORG", "http://example.org/", "example.org", 80),
        (" https://example.org/a b?q=1#part ", "https://example.org/a%20b?q=1", "example.org", 443),
        ("HTTP://example.org:8080/x", "http://example.org:8080/x", "example.org", 8080),
        ("http://[::1]:81/", "http://[::1]:81/", "::1", 81),
        ("http://bücher.example/ä", "http://xn--bcher-kva.example/%C3%A4", "xn--bcher-kva.example", 80),
        ("http://example.org/a\r\nHost: evil", "http://example.org/a%0D%0AHost:%20evil", "example.org", 80),
    ],
)
def test_spelling(url: str, spelling: str, host: str, port: int) -> None:
    target = parse_target(url)
    assert (target.url, target.host, target.port) == (spelling, host, port)


@pytest.mark.parametrize(
    "url",
    ["", "imgur.com/a/x", "ftp://example.org/", "file:///etc/passwd", "http://", "http:///path", "javascript:alert(1)",
     "http://user:word@example.org/", "http://[::1/", "http://example.org:99999/"],
)  # fmt: skip
def test_urls_that_cannot_be_asked_for(url: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        parse_target(url)
    assert caught.value.reason is Reason.INVALID_URL


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "https://example.org/b"),
        ("c?d=1", "https://example.org/a/c?d=1"),
        ("//other.example/e", "https://other.example/e"),
        ("http://third.example", "http://third.example/"),
    ],
)
def test_locations_may_be_relative(location: str, url: str) -> None:
    assert redirected(parse_target("https://example.org/a/b"), location).url == url


def test_origin_names_a_port_that_is_not_the_usual_one() -> None:
    assert parse_target("https://example.org:443/x").origin == "https://example.org"
    assert parse_target("http://[::1]:81/x").origin == "http://[::1]:81"
