"""Which addresses are public, and which hosts may be reached."""

import re
from ipaddress import ip_address
from typing import Any
from unittest.mock import Mock

import pytest

from pipelines.settings import HttpConfig
from pipelines.web.addresses import AddressBook, is_public
from pipelines.web.requests import FetchFailed
from schemas.errors import ConfigError
from schemas.failures import Reason


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
