"""Which pictures are searched: conditions on their metadata, written `FIELD OP VALUE`, to SQL with parameters.

    date>=2019-05, width<=800        compared; dates as text, so that 2019-05-17 >= 2019-05
    credit=dpa, licence!=CC0-1.0     equal, whatever the case of letters
    place~New York, keywords~flood   the words are there, in this order (full-text search)
    entity Kofi Annan                the words are in any field

Values reach SQLite as parameters and quoted phrases alone: nothing that is written in a condition is SQL.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.errors import UsageError

COMPARED = ("date", "width", "height")
EQUAL = ("credit", "licence", "format", "orientation")
WORDS = ("title", "caption", "credit", "place", "keywords")
SHOWN_WITH = "shown_with"  # captions of articles that showed a picture: full text, but no description of it
_OPERATORS = {
    **dict.fromkeys(COMPARED, "< <= = != >= >"),
    **dict.fromkeys(EQUAL, "= !="),
    **{name: "= != ~" if name in EQUAL else "~" for name in WORDS},
}
_SQL = {"=": "IS", "!=": "IS NOT", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_CONDITION = re.compile(r"\s*([a-z_]+)\s*(<=|>=|!=|=|<|>|~)\s*(.*?)\s*", re.S)


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that all hold: SQL on the table `images`, "" for none, and its parameters."""

    sql: str = ""
    parameters: tuple[str | int, ...] = ()


NO_FILTERS = Filters()


def parse_filters(where: Sequence[str] = (), entities: Sequence[str] = ()) -> Filters:
    """Return the filters of some conditions and entities.

    Raises:
        UsageError: a condition has no known field, no operator of that field, or no value.
    """
    found = [_condition(text) for text in where] + [_contains(name, option="--entity") for name in entities]
    return Filters(" AND ".join(sql for sql, _ in found), tuple(value for _, value in found))


def phrase(text: str) -> str:
    """Return a text as one phrase of full-text search, whatever it contains."""
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'


def _condition(text: str) -> tuple[str, str | int]:
    parsed = _CONDITION.fullmatch(text)
    fields = ", ".join(_OPERATORS)
    if parsed is None or not parsed[3]:
        raise UsageError(f"--where {text!r}: expected FIELD OP VALUE, such as date>=2019-05-01; fields: {fields}")
    name, operator, value = parsed.groups()
    if name not in _OPERATORS:
        raise UsageError(f"--where {text!r}: no field {name!r}; fields: {fields}")
    if operator not in _OPERATORS[name].split():
        raise UsageError(f"--where {text!r}: expected {name} with one of {_OPERATORS[name]}")
    if operator == "~":
        return _contains(value, column=name)
    is_number = name in ("width", "height")
    if is_number and not value.isdecimal():
        raise UsageError(f"--where {text!r}: expected a number of pixels")
    return f"{name} {_SQL[operator]} ?", int(value) if is_number else value


def _contains(value: str, *, column: str | None = None, option: str = "--where") -> tuple[str, str]:
    if not re.search(r"\w", value):
        raise UsageError(f"{option} {value!r}: expected a word at least")
    scope = f"{column} : " if column else ""
    return "row IN (SELECT rowid FROM words WHERE words MATCH ?)", scope + phrase(value)
