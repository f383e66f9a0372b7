"""The client every source fetches through (signatures first; being filled in).

`Client.get` answers from the raw store where it can, and goes out once where it must.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pipelines.config import HttpConfig
from pipelines.http.captures import Capture, Kind
from schemas.lake import Folder


class Client:
    """Thread-safe; make one per process with `process_client`."""

    def __init__(self, config: HttpConfig, raw: Folder) -> None:
        raise NotImplementedError

    def get(
        self,
        url: str,
        *,
        source: str,
        kind: Kind,
        headers: Mapping[str, str] | None = None,
        max_age_s: float | None = None,
    ) -> Capture:
        """Return the captured answer to a GET, going out only where none is stored (raises FetchFailed)."""
        raise NotImplementedError

    def body(self, capture: Capture) -> bytes:
        raise NotImplementedError


@lru_cache(maxsize=8)
def process_client(config: HttpConfig, raw: Folder) -> Client:
    """Return this process's one client for a configuration and store (so that threads share its pace)."""
    return Client(config, raw)
