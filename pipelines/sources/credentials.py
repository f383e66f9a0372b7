"""Keys of the services a source may need: read from the environment once, at the edge, and never written anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Empty where a service is not used."""

    reddit_client_id: str = field(default="", repr=False)
    reddit_client_secret: str = field(default="", repr=False)
    imgur_client_id: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Credentials:
        """Return the keys in REDDIT_CLIENT_ID, REDDIT_CLIENT_SECRET and IMGUR_CLIENT_ID."""
        return cls(
            reddit_client_id=environment.get("REDDIT_CLIENT_ID", ""),
            reddit_client_secret=environment.get("REDDIT_CLIENT_SECRET", ""),
            imgur_client_id=environment.get("IMGUR_CLIENT_ID", ""),
        )
