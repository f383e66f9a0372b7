"""The dotted keys of a configuration."""

from typing import Any

from schemas.configs import resolve
from schemas.overrides import places


def dotted_keys(config: object) -> dict[str, Any]:
    """Return each settable dotted key of a configuration with its declared type."""
    return {place.key: place.hint for place in places(config, resolve(config))}
