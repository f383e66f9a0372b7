"""Which addresses may be connected to: public ones, and those the configuration names.

A host's name is looked up here once, when a connection is opened; every address it has is checked, and the caller
connects to one of exactly these (so a second look-up cannot give another answer). Private, loopback, link-local,
multicast and reserved addresses are refused, also where an IPv6 address carries them inside.
"""

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from pipelines.web.requests import FetchFailed
from schemas.failures import Reason

IpAddress = IPv4Address | IPv6Address
Endpoint = tuple[str, int]  # an address and a port, to be connected to as they stand
Lookup = Callable[[str, int], Iterable[str]]

_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
# Not public, though older versions of `ipaddress` say so: relays of 6to4 (RFC 7526), documentation (RFC 9637).
_NOT_PUBLIC = (ip_network("192.88.99.0/24"), ip_network("3fff::/20"))


def is_public(address: IpAddress) -> bool:
    """Return whether an address is globally reachable unicast, and so is every IPv4 address it carries."""
    if isinstance(address, IPv6Address):
        carried = _carried(address)
        if carried:
            return all(is_public(inner) for inner in carried)
        if address.is_site_local:
            return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _carried(address: IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses inside an IPv6 address (mapped, 6to4, Teredo, NAT64)."""
    nat64 = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
    found = (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()), nat64)
    return [each for each in found if each is not None]


def look_up(host: str, port: int) -> list[str]:
    """Return the addresses the system's resolver gives, in its order, each once.

    Raises:
        OSError: the name cannot be resolved.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or too long
        raise OSError(f"{host!r} is no host name") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class AddressBook:
    """The checked addresses of hosts, under one configuration (`HttpConfig.allow_hosts`, `connect_to`)."""

    def __init__(
        self, *, allow_hosts: Iterable[str] = (), connect_to: Iterable[str] = (), lookup: Lookup = look_up
    ) -> None:
        self._allowed = frozenset(_host_and_port(entry) for entry in allow_hosts)
        detours = (entry.partition("=") for entry in connect_to)
        self._detours = {host.strip("[]").lower(): _host_and_port(endpoint) for host, _, endpoint in detours}
        self._lookup = lookup

    def endpoints(self, host: str, port: int) -> list[Endpoint]:
        """Return where a connection for `host:port` may go, best first.

        Raises:
            FetchFailed: ADDRESS_REFUSED: one of its addresses is not public and not allowed; CONNECTION_FAILED: its
                name cannot be resolved.
        """
        host = host.strip("[]").lower()
        is_detour = host in self._detours
        try:
            endpoints = [self._detours[host]] if is_detour else [(each, port) for each in self._lookup(host, port)]
        except OSError as error:
            raise FetchFailed(Reason.CONNECTION_FAILED, f"{host}: its name cannot be resolved", "gaierror") from error
        if not is_detour and (host, port) in self._allowed:
            return endpoints
        for endpoint in endpoints:
            if endpoint not in self._allowed and (is_detour or not is_public(ip_address(endpoint[0]))):
                shown = "[{}]:{}".format(*endpoint) if ":" in endpoint[0] else "{}:{}".format(*endpoint)
                message = f"{host}:{port} leads to {shown}, which is not public; http.allow_hosts can allow {shown}"
                raise FetchFailed(Reason.ADDRESS_REFUSED, message)
        return endpoints


def _host_and_port(entry: str) -> Endpoint:
    host, _, port = entry.rpartition(":")
    return host.strip("[]").lower(), int(port)
