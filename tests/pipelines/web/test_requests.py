"""Spellings of addresses, which are public and which may be reached, and what an answer says of asking again."""

import re
from ipaddress import ip_address
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.settings import HttpConfig
from pipelines.web.addresses import AddressBook, is_public
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
from schemas.messages import ConfigError


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


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b::808:808"],
)
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1", "::127.0.0.1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::1", "2002:a9fe:a9fe::1", "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "3fff::1", "3fff:fff::1", "192.88.99.1",
        "::ffff:192.88.99.1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


def test_public_addresses_are_given_in_order() -> None:
    book = AddressBook(lookup=lambda host, port: ["2606:4700::1111", "93.184.216.34"])
    assert book.endpoints("Example.org", 443) == [("2606:4700::1111", 443), ("93.184.216.34", 443)]


NO_SUCH_NAME = Mock(side_effect=OSError("no such name"))

UNWANTED = Mock(side_effect=AssertionError("looked up"))
DETOUR = ["imgur.com=127.0.0.1:8080"]


@pytest.mark.parametrize(
    ("host", "settings", "reason", "words"),
    [
        *(
            (host, {}, Reason.ADDRESS_REFUSED, "not public")
            for host in ("127.1", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "[::1]", "localhost")
        ),
        (  # one private address among public ones
            "example.org",
            {"lookup": lambda host, port: ["93.184.216.34", "10.0.0.1"]},
            Reason.ADDRESS_REFUSED,
            "10.0.0.1:80",
        ),
        ("nowhere.example", {"lookup": NO_SUCH_NAME}, Reason.CONNECTION_FAILED, "cannot be resolved"),
        ("imgur.com", {"connect_to": DETOUR, "lookup": UNWANTED}, Reason.ADDRESS_REFUSED, "127.0.0.1:8080"),
    ],
)
def test_a_host_that_may_not_be_reached_has_its_reason(
    host: str, settings: dict[str, Any], reason: Reason, words: str
) -> None:
    with pytest.raises(FetchFailed, match=f"{reason}.*{re.escape(words)}"):
        AddressBook(**settings).endpoints(host, 80)


@pytest.mark.parametrize(
    ("allowed", "port", "is_allowed"),
    [
        ("inner.example:80", 80, True),
        ("INNER.example:80", 80, True),
        ("10.0.0.1:80", 80, True),
        ("inner.example:80", 81, False),
        ("10.0.0.2:80", 80, False),
    ],
)
def test_an_allowance_is_for_a_host_or_address_and_one_port(allowed: str, port: int, is_allowed: bool) -> None:
    book = AddressBook(allow_hosts=[allowed], lookup=lambda host, port: ["10.0.0.1"])
    if is_allowed:
        assert book.endpoints("inner.example", port) == [("10.0.0.1", port)]
    else:
        with pytest.raises(FetchFailed):
            book.endpoints("inner.example", port)


def test_an_allowed_detour_asks_no_name_server() -> None:
    book = AddressBook(connect_to=DETOUR, allow_hosts=["127.0.0.1:8080"], lookup=UNWANTED)
    assert book.endpoints("imgur.com", 443) == [("127.0.0.1", 8080)]


def test_an_ipv6_allowance_is_written_in_brackets() -> None:
    assert AddressBook(allow_hosts=["[::1]:80"]).endpoints("::1", 80) == [("::1", 80)]


def test_an_allowance_without_port_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        HttpConfig(allow_hosts=("localhost",))
