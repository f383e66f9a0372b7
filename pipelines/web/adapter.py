"""Checked connections for a library that brings its own requests session (PRAW).

The sources' own client does not come through here (`client.py`).
"""

from __future__ import annotations

import socket
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from pipelines.web.addresses import AddressBook
from pipelines.web.connections import open_socket, tls_context


class CheckedAdapter(HTTPAdapter):
    """Opens only addresses the book gives: mount it for `http://` and `https://`."""

    def __init__(self, addresses: AddressBook, *, ca_bundle: str = "") -> None:
        self._pools = _CheckedPools(addresses, ca_bundle=ca_bundle)
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        self.poolmanager = self._pools


class _CheckedPools(PoolManager):
    def __init__(self, addresses: AddressBook, *, ca_bundle: str) -> None:
        super().__init__(ssl_context=tls_context(ca_bundle))
        self._addresses = addresses

    def _new_pool(
        self, scheme: str, host: str, port: int, request_context: dict[str, Any] | None = None
    ) -> HTTPConnectionPool:
        pool = super()._new_pool(scheme, host, port, request_context)
        pool.ConnectionCls = _CheckedTls if scheme == "https" else _Checked
        pool.conn_kw["addresses"] = self._addresses
        return pool


class _Checked(HTTPConnection):
    addresses: AddressBook

    def __init__(self, *args: Any, addresses: AddressBook, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.addresses = addresses

    def _new_conn(self) -> socket.socket:
        timeout_s = self.timeout if isinstance(self.timeout, int | float) else None
        try:
            return open_socket(self.addresses, self.host, self.port, timeout_s=timeout_s)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection to {self.host} in time") from error
        except OSError as error:
            raise NewConnectionError(self, f"no connection to {self.host}: {error}") from error


class _CheckedTls(_Checked, HTTPSConnection):
    """The same under TLS."""
