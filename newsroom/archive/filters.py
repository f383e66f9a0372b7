"""Which pictures are searched: conditions on what is known of them, written `FIELD OP VALUE`.

    date>=2019-05, width<=800        compared; of a date to its precision: 2019-05 is every day of that month
    credit=dpa, licence!=CC0-1.0     equal, whatever the case of letters
    place~New York, keywords~flood   the words are there, in this order
    entity Kofi Annan                the words are in any field

A condition is data: `records.py` makes rows of it, and `words.py` a query of the index of words.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from schemas.messages import UsageError

COMPARED = ("date", "width", "height")
EQUAL = ("credit", "licence", "format", "orientation")
WORDS = ("title", "caption", "credit", "place", "keywords")
SHOWN_WITH = "shown_with"  # captions of articles that showed a picture: words of it, but no description
MOST = 2**31 - 1
_OPERATORS = {
    **dict.fromkeys(COMPARED, "< <= = != >= >"),
    **dict.fromkeys(EQUAL, "= !="),
    **{name: "= != ~" if name in EQUAL else "~" for name in WORDS},
}
_CONDITION = re.compile(r"\s*([A-Za-z_]+)\s*([<>=!~]+)\s*(.*?)\s*", re.S)
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a field of a picture must be.

    Attributes:
        field: its name; "": any field that has words.
        phrase: words that it has in this order; "": it is compared.
        value: what it equals, in small letters, of EQUAL.
        low: the smallest number that it may be, of COMPARED; of a date YYYYMMDD.
        high: the largest.
        is_negated: whether it must not be so.
    """

    field: str
    phrase: str = ""
    value: str = ""
    low: int = 0
    high: int = MOST
    is_negated: bool = False


Filters = tuple[Condition, ...]  # which all hold


def parse_filters(where: Sequence[str] = (), entities: Sequence[str] = ()) -> Filters:
    """Return the filters of some conditions and entities.

    Raises:
        UsageError: a condition has no known field, no operator of that field, or no value.
    """
    return (*map(_condition, where), *(_contains(name, "--entity", "") for name in entities))


def _condition(text: str) -> Condition:
    parsed = _CONDITION.fullmatch(text)
    fields = ", ".join(_OPERATORS)
    if parsed is None or not parsed[3]:
        raise UsageError(f"--where {text!r}: expected FIELD OP VALUE, such as date>=2019-05-01; fields: {fields}")
    name, operator, value = parsed.groups()
    name = name.lower()
    if name not in _OPERATORS:
        near = get_close_matches(name, _OPERATORS, 1)
        meant = f"; did you mean {near[0]}{operator}{value}?" if near else ""
        raise UsageError(f"--where {text!r}: no field {name!r}; fields: {fields}{meant}")
    if operator not in _OPERATORS[name].split():
        raise UsageError(f"--where {text!r}: expected {name} with one of {_OPERATORS[name]}")
    if operator == "~":
        return _contains(value, "--where", name)
    if name in EQUAL:
        return Condition(field=name, value=value.lower(), is_negated=operator == "!=")
    return _compared(text, name, operator, value)


def _compared(text: str, name: str, operator: str, value: str) -> Condition:
    """Return a comparison as the numbers from the smallest to the largest that meet it."""
    is_number, pattern = name != "date", re.compile(r"\d{1,9}") if name != "date" else _DATE
    if not pattern.fullmatch(value):
        what = "a number of pixels" if is_number else "a year, month or day, such as 2019, 2019-05 or 2019-05-01"
        raise UsageError(f"--where {text!r}: expected {what}")
    digits = value.replace("-", "")
    first, last = (int(digits), int(digits)) if is_number else (int(digits.ljust(8, "0")), int(digits.ljust(8, "9")))
    low, high = {
        "<": (0, first - 1), "<=": (0, last), ">": (last + 1, MOST), ">=": (first, MOST),
    }.get(operator, (first, last))  # fmt: skip
    return Condition(field=name, low=low, high=high, is_negated=operator == "!=")


def _contains(value: str, option: str, name: str) -> Condition:
    if not re.search(r"[^\W_]", value):
        raise UsageError(f"{option} {value!r}: expected a word at least")
    return Condition(field=name, phrase=value)
