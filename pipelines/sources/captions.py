"""Fields that the crowd-labelled sources share: a caption's text, and numbers that may be written as text."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from pipelines.sources.fields import FieldError, checked, clean
from schemas.failures import Reason

MAX_ID = 2**63  # ids are kept in 64 bits


def caption_text(record: Mapping[str, Any], *names: str) -> str:
    """Return the first of the fields that is there, entities replaced, white space made single spaces.

    Raises:
        FieldError: MISSING_FIELD: none is there; BROKEN_RECORD: it is no text; EMPTY_SENTENCE: it is blank.
    """
    found = next((name for name in names if record.get(name) is not None), None)
    if found is None:
        raise FieldError(Reason.MISSING_FIELD, f"expected the field {names[0]!r}, found none")
    text = " ".join(clean(html.unescape(checked(record[found], str, found))).split())
    if not text:
        raise FieldError(Reason.EMPTY_SENTENCE, f"{found}: expected a caption, found it blank")
    return text


def number(record: Mapping[str, Any], name: str) -> int:
    """Return a field that is a whole number from 0, perhaps written as text.

    Raises:
        FieldError: MISSING_FIELD: it is absent or null; BROKEN_RECORD: it is no such number.
    """
    value = record.get(name)
    if value is None:
        raise FieldError(Reason.MISSING_FIELD, f"expected the field {name!r}, found none")
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    value = checked(value, int, name)
    if not 0 <= value < MAX_ID:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected a number from 0, found one out of range")
    return value


def name_of(record: Mapping[str, Any], name: str) -> str:
    """Return an id that is text or a number, as text.

    Raises:
        FieldError: MISSING_FIELD: it is absent, null or blank; BROKEN_RECORD: it is something else.
    """
    value = record.get(name)
    if isinstance(value, int):
        return str(checked(value, int, name))
    text = "" if value is None else checked(value, str, name).strip()
    if not text:
        raise FieldError(Reason.MISSING_FIELD, f"expected the field {name!r}, found none")
    return text


def file_name(record: Mapping[str, Any], name: str) -> str:
    """Return an id or a file name that stays below the folder it is relative to.

    Raises:
        FieldError: as `name_of`; BROKEN_RECORD too where a part of it is empty, `.` or `..`.
    """
    text = name_of(record, name)
    if "\\" in text or "\0" in text or not {"", ".", ".."}.isdisjoint(text.split("/")):
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected a name below a folder, found {text[:60]!r}")
    return text
