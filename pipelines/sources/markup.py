"""Markup of pages: how much work a parser may be made to do, known before it starts, and the addresses in it.

The parsers used here (`html.parser`, mwparserfromhell) read to the end of a text for what would close an opening, and
come back where nothing does: their time grows with the openings that never close times the length of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from urllib.parse import urljoin

from pipelines.sources.records import FieldError
from schemas.failures import Reason

_COMMENT = re.compile("(<!--)|-->")
_CUT_TAG = re.compile(r"<[A-Za-z][^<>]*+(?!>)")  # another tag begins before its end


def count_unclosed(tokens: Iterable[tuple[str, bool]]) -> int:
    """Return how many openings have no closing of their kind after them.

    Args:
        tokens: kind, and whether it opens, in the order of the text.
    """
    unclosed: Counter[str] = Counter()
    for kind, is_opening in tokens:
        unclosed[kind] = max(0, unclosed[kind] + (1 if is_opening else -1))
    return unclosed.total()


def check_work(text: str, *, limit: float, unclosed: int = 0) -> None:
    """Raise where a text has so many openings without an end that parsing it would take long.

    Args:
        text: markup.
        limit: openings that never close, times characters.
        unclosed: openings that never close, tags without `>` and comments apart.

    Raises:
        FieldError: BROKEN_RECORD.
    """
    comments = count_unclosed(("", bool(match[1])) for match in _COMMENT.finditer(text))
    count = unclosed + comments + len(_CUT_TAG.findall(text))
    if count * len(text) > limit:
        raise FieldError(Reason.BROKEN_RECORD, f"expected markup, found {count} openings that never close")


def absolute_url(base_url: str, address: str) -> str:
    """Return an address completed by that of its page; as it stands where it is malformed, for others to refuse."""
    try:
        return urljoin(base_url, address)
    except ValueError:
        return address
