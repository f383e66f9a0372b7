"""What the pages are started with."""

import ipaddress
from dataclasses import dataclass

from schemas.errors import UsageError

LEAST_TOKEN = 16  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesSettings:
    """What `multilink pages` is told.

    Attributes:
        lake: path or URI.
        indexes: paths or URIs of indexes; empty: all of the lake.
        store: address of the database of texts and decisions, as SQLAlchemy writes it.
        tracking: MLflow's address; None: no model is said to be champion or challenger.
        host: address that is listened on.
        port: of it; 0: one that is free.
        token: what a visitor must show; "": nothing.
        user_header: header in which a reverse proxy names the visitor it let in; "": none does.
        reading: `KEY=VALUE` settings of the extractors that read queries.

    Raises:
        UsageError: others could come in without being asked who they are.
    """

    lake: str
    store: str
    indexes: tuple[str, ...] = ()
    tracking: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    user_header: str = ""
    reading: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.is_local and not self.token and not self.user_header:
            raise UsageError(
                f"--host {self.host}: others can reach it; expected --token, or --user-header of a reverse proxy"
            )
        if self.token and len(self.token) < LEAST_TOKEN:
            raise UsageError(f"--token: expected at least {LEAST_TOKEN} characters, found {len(self.token)}")
        if self.token and self.user_header:
            raise UsageError("--token, --user-header: expected one of them")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the pages."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
