"""The dotted keys of a configuration, and configurations of small parts."""

from collections.abc import Mapping
from typing import Any

from schemas.configs import resolve
from schemas.overrides import override, places

SMALL: Mapping[str, object] = {
    "dimensions": 16,
    "text.word_vectors": "",
    "text.word_dimensions": 8,
    "text.min_word_count": 1,
    "text.layers": 1,
    "text.heads": 2,
    "text.head_dimensions": 4,
    "text.hidden_dimensions": 16,
    "text.buckets": 64,
    "image.layers": 1,
    "image.heads": 2,
    "image.hidden_dimensions": 16,
}


def dotted_keys(config: object) -> dict[str, Any]:
    """Return each settable dotted key of a configuration with its declared type."""
    return {place.key: place.hint for place in places(config, resolve(config))}


def shrunk(config: Any, settings: Mapping[str, object] | None = None) -> Any:
    """Return a configuration of small parts; of the small sizes and of `settings` those count that it has."""
    known = dotted_keys(config)
    wanted = {**SMALL, **(settings or {})}
    return override(config, [f"{key}={value}" for key, value in wanted.items() if key in known])
