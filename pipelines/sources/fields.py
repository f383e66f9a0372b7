"""Reading typed fields of a JSON object that somebody else wrote.

Each function returns the field's value or raises `FieldError`, which knows the reason of the failure row it becomes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from schemas.documents import Split
from schemas.failures import Failure, Reason, Stage

T = TypeVar("T")
UNKNOWN = frozenset({"", "nan", "none", "null"})  # how tables spell that nothing is known
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class FieldError(ValueError):
    """A field is absent or has another type than the published one."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def failure(self, record_id: str) -> Failure:
        """Return the failure row of the record it was found in."""
        return Failure(Stage.SOURCES, record_id, self.reason, str(self))


def required(record: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return a field that must be there.

    Raises:
        FieldError: MISSING_FIELD: it is absent or null; BROKEN_RECORD: it has another type.
    """
    value = record.get(name)
    if value is None:
        raise FieldError(Reason.MISSING_FIELD, f"expected the field {name!r}, found none")
    return checked(value, kind, name)


def optional(record: Mapping[str, Any], name: str, default: T) -> T:
    """Return a field of the default's type, or the default where it is absent or null.

    Raises:
        FieldError: BROKEN_RECORD: it has another type.
    """
    value = record.get(name)
    return default if value is None else checked(value, type(default), name)


def identifier(record: Mapping[str, Any], name: str = "id") -> str:
    """Return an id that is text or a whole number, as text without space around it.

    Raises:
        FieldError: MISSING_FIELD: it is absent, null or blank; BROKEN_RECORD: it is something else.
    """
    value = record.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = required(record, name, str).strip()
    if not text:
        raise FieldError(Reason.MISSING_FIELD, f"expected the field {name!r}, found it empty")
    return text


def checked(value: object, kind: type[T], name: str) -> T:
    """Return a value that must be of one type (true and false are no numbers).

    Text comes back `clean`.

    Raises:
        FieldError: BROKEN_RECORD.
    """
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        message = (
            f"{name}: expected {_NAMES.get(kind, kind.__name__)}, found {_NAMES.get(type(value), 'something else')}"
        )
        raise FieldError(Reason.BROKEN_RECORD, message)
    return cast(T, clean(value)) if isinstance(value, str) else value


def split_named(value: object, name: str) -> Split | None:
    """Return the split that a record names, under whatever of its usual names; None where it names none.

    Raises:
        FieldError: BROKEN_RECORD: it is no name of a split.
    """
    text = "" if value is None else checked(value, str, name).strip().lower()
    if text in UNKNOWN:
        return None
    if text not in _SPLITS:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected one of {', '.join(_SPLITS)}, found {text[:40]!r}")
    return _SPLITS[text]


def clean(text: str) -> str:
    """Return a text without halves of surrogate pairs, which JSON can spell and UTF-8 cannot: they become U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text)


_SPLITS: Mapping[str, Split] = {
    "train": Split.TRAIN,
    "val": Split.VAL,
    "valid": Split.VAL,
    "validation": Split.VAL,
    "dev": Split.VAL,
    "test": Split.TEST,
}
_NAMES: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a fraction",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
