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
SHOWN_WITH = (
    "shown_with"  # captions of articles that showed a picture: full text, but nothing said of the picture itself
)
_SQL = {"=": "IS", "!=": "IS NOT", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_CONDITION = re.compile(r"\s*([a-z_]+)\s*(<=|>=|!=|=|<|>|~)\s*(.*?)\s*", re.S)


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that all hold: SQL on the table `images`, "" for none, and its parameters."""

    sql: str = ""
    parameters: tuple[str | int, ...] = ()


NO_FILTERS = Filters()


def parse_filters(where: Sequence[str] = (), entities: Sequence[str] = ()) -> Filters:
    """Return the filters that conditions and entities ask for.

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
    fields = ", ".join(dict.fromkeys((*COMPARED, *EQUAL, *WORDS)))
    if parsed is None or not parsed[3]:
        raise UsageError(f"--where {text!r}: expected FIELD OP VALUE, such as date>=2019-05-01; fields: {fields}")
    name, operator, value = parsed.groups()
    if operator == "~" and name in WORDS:
        return _contains(value, column=name)
    if operator in _SQL and name in COMPARED:
        if name == "date":
            return f"date {_SQL[operator]} ?", value
        if not value.isdecimal():
            raise UsageError(f"--where {text!r}: expected a number of pixels")
        return f"{name} {_SQL[operator]} ?", int(value)
    if operator in ("=", "!=") and name in EQUAL:
        return f"{name} {_SQL[operator]} ?", value
    if name not in (*COMPARED, *EQUAL, *WORDS):
        raise UsageError(f"--where {text!r}: no field {name!r}; fields: {fields}")
    able = ["< <= = != >= >"] * (name in COMPARED) + ["= !="] * (name in EQUAL) + ["~"] * (name in WORDS)
    raise UsageError(f"--where {text!r}: {name} can be asked for with {' '.join(able)}")


def _contains(value: str, *, column: str | None = None, option: str = "--where") -> tuple[str, str]:
    if not re.search(r"\w", value):
        raise UsageError(f"{option} {value!r}: expected a word at least")
    scope = f"{column} : " if column else ""
    return "row IN (SELECT rowid FROM words WHERE words MATCH ?)", scope + phrase(value)
