"""Records that travel between workers: dataclasses that are pickled fast.

A build pickles each document and image a dozen times. The state functions that `dataclass(frozen=True, slots=True)`
generates take four times as long as naming the class and its values.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def travels(record: type[T]) -> type[T]:
    """Make a dataclass be pickled as a call of its class with the values of its fields; for use as a decorator."""
    names = [field.name for field in dataclasses.fields(record)]  # type: ignore[arg-type]
    first, *others = names
    values = attrgetter(first, *others) if others else _alone(attrgetter(first))

    def reduce(self: T) -> tuple[type[T], tuple[Any, ...]]:
        return record, values(self)

    record.__reduce__ = reduce  # type: ignore[method-assign,assignment]
    return record


def _alone(get: Any) -> Any:
    def value(item: Any) -> tuple[Any]:
        return (get(item),)

    return value
