"""Spellings of addresses, and what an answer says of asking again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.web.requests import (
    LONGEST_WAIT_S,
    FetchFailed,
    backoff_s,
    host_of,
    may_help,
    normalise,
    parse_target,
    posix_time,
    reason_of_status,
    redirected,
    retry_after_s,
    utc_text,
)
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
        ("http://example.org:80/a%2Db%2fc/%7e", "http://example.org/a-b%2Fc/~", "example.org", 80),
        ("https://example.org:443/a/%2e%2E/b?", "https://example.org/b?", "example.org", 443),
        ("https://Ex\uff21mple.org./a", "https://example.org/a", "example.org", 443),
        ("http://BÜCHER.example:80/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example", 80),
        ("http://b%C3%BCcher.example/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example", 80),
        ("http://ex\u3002example/", "http://ex.example/", "ex.example", 80),
        ("http://\u2603.net/", "http://xn--n3h.net/", "xn--n3h.net", 80),
        ("http://1.2.3.4.:8080/", "http://1.2.3.4:8080/", "1.2.3.4", 8080),
        ("http://example.org/\x00\ud800", "http://example.org/%00%ED%A0%80", "example.org", 80),
    ],
)
def test_spelling(url: str, spelling: str, host: str, port: int) -> None:
    target = parse_target(url)
    assert (target.url, target.host, target.port) == (spelling, host, port)


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://[1.2.3.4]/a", "http://ex℀mple.com/x", "http://a／b/x", f"http://example.org:{'9' * 5000}/",
     "http://a\x00b/", "http://\ud800.example/", "http://a b/", "//[x.jpg",
     "http://%zz/", "", "imgur.com/a/x", "ftp://example.org/", "file:///etc/passwd", "http://",
     "http:///path", "javascript:alert(1)", "http://./", "http://a\uff0fb.example/x", "http://a%2Fb.example/x",
     "http://user:word@example.org/", "http://[::1/", "http://example.org:99999/"],
)  # fmt: skip
def test_urls_that_cannot_be_asked_for(url: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        parse_target(url)
    assert caught.value.reason is Reason.INVALID_URL
    assert len(caught.value.message) < 500 and caught.value.message.isprintable()
    assert host_of(url) is None


@given(st.text(max_size=40).map(lambda text: f"http://{text}") | st.text(max_size=40))
def test_any_text_is_a_url_of_one_spelling_or_none(text: str) -> None:
    try:
        spelling = normalise(text)
    except FetchFailed as problem:
        assert problem.reason is Reason.INVALID_URL and host_of(text) is None
    else:
        assert normalise(spelling) == spelling and host_of(text) == host_of(spelling)
        assert spelling.isascii() and spelling.isprintable()


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "https://example.org/b"),
        ("c?d=1", "https://example.org/a/c?d=1"),
        ("//other.example/e", "https://other.example/e"),
        ("http://third.example", "http://third.example/"),
        ("/b\xc3\xa4", "https://example.org/b%C3%A4"),
    ],
)
def test_locations_may_be_relative(location: str, url: str) -> None:
    assert redirected(parse_target("https://example.org/a/b"), location).url == url


def test_origin_names_a_port_that_is_not_the_usual_one() -> None:
    assert parse_target("https://example.org:443/x").origin == "https://example.org"
    assert parse_target("http://[::1]:81/x").origin == "http://[::1]:81"


def test_what_may_be_tried_again() -> None:
    again = {status for status in range(400, 600) if may_help(reason_of_status(status), status)}
    assert again == {429, 500, 502, 503, 504}
    reasons = {reason for reason in Reason if may_help(reason, None)}
    assert reasons == {Reason.CONNECTION_FAILED, Reason.TIMED_OUT, Reason.TRUNCATED}


def test_backoff_doubles_with_jitter_up_to_a_limit() -> None:
    for attempt, expected in ((1, 1.0), (2, 2.0), (5, 16.0)):
        assert all(expected / 2 <= backoff_s(attempt, first_s=1.0) < expected * 1.5 for _ in range(20))
    assert backoff_s(999, first_s=1.0) == LONGEST_WAIT_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("", None),
        ("²", None),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": text}, now=100.0) == seconds


def test_times_survive_their_text() -> None:
    assert utc_text(1_400_000_000.25) == "2014-05-13T16:53:20.250000Z"
    assert posix_time(utc_text(1_400_000_000.25)) == 1_400_000_000.25
