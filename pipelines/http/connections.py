"""Connections of urllib3 that open only checked addresses, and pools that make such connections.

The request stays what it was: the Host header, the TLS server name and the certificate check all use the URL's host;
only where the TCP connection goes comes from the `AddressBook`. Nothing here reads proxy variables of the environment.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

import certifi
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util.connection import create_connection

from pipelines.http import deadline
from pipelines.http.addresses import AddressBook


class _Checked(HTTPConnection):
    """Opens its socket at an address the book gives, under the thread's deadline."""

    addresses: AddressBook

    def __init__(self, *args: Any, addresses: AddressBook, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.addresses = addresses

    def _new_conn(self) -> socket.socket:
        problem: OSError | None = None
        for endpoint in self.addresses.endpoints(self.host, self.port):
            try:
                opened = create_connection(
                    (endpoint.address, endpoint.port),
                    self.timeout,
                    source_address=self.source_address,
                    socket_options=self.socket_options,
                )
            except OSError as error:
                problem = error
                continue
            _watch(opened)
            return opened
        if isinstance(problem, TimeoutError):
            raise ConnectTimeoutError(self, f"no connection to {self.host} in time") from problem
        raise NewConnectionError(self, f"no connection to {self.host}: {problem}") from problem

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:  # an open connection that is used again
            _watch(self.sock)
        super().request(*args, **kwargs)


class _CheckedTls(_Checked, HTTPSConnection):
    """The same under TLS."""


def _watch(opened: socket.socket) -> None:
    limit = deadline.current()
    if limit is not None:
        limit.watch(opened)


class CheckedPools(PoolManager):
    """A urllib3 pool manager whose every connection goes to a checked address."""

    def __init__(self, addresses: AddressBook, *, ca_bundle: str = "", **settings: Any) -> None:
        super().__init__(ssl_context=_tls_context(ca_bundle), **settings)
        self._addresses = addresses

    def _new_pool(
        self, scheme: str, host: str, port: int, request_context: dict[str, Any] | None = None
    ) -> HTTPConnectionPool:
        pool = super()._new_pool(scheme, host, port, request_context)
        pool.ConnectionCls = _CheckedTls if scheme == "https" else _Checked
        pool.conn_kw["addresses"] = self._addresses
        return pool


class CheckedAdapter(HTTPAdapter):
    """The same for a library that brings its own requests session (PRAW): mount it for `http://` and `https://`."""

    def __init__(self, addresses: AddressBook, *, ca_bundle: str = "") -> None:
        self._pools = CheckedPools(addresses, ca_bundle=ca_bundle)
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        self.poolmanager = self._pools


def _tls_context(ca_bundle: str) -> ssl.SSLContext:
    """Return a verifying context that trusts the system's authorities, Mozilla's, and those of a file."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    if ca_bundle:
        context.load_verify_locations(ca_bundle)
    return context
