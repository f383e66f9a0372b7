"""METADATA: a picture's description in words, a struct of the images table; its texts are bounded and in one line.

It comes from a picture's own file or from the source that gave it. Whoever makes it passes texts through `plain_text`,
dates through `day_of` and keywords through `keywords_of`, since all of it is somebody else's.

RIGHTS (`Rights`): what a picture's file says of who may use it, a struct of the images table; bounded as METADATA is.

Embedded by agencies, cameras and generators: XMP (Dublin Core, Creative Commons, IPTC, PLUS), IPTC-IIM, EXIF. Nothing
of it is proved.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import date

import pyarrow as pa

from schemas.tables import column, travels

MAX_TEXT = 2_000  # characters of a field
MAX_KEYWORDS, MAX_KEYWORD = 64, 100  # keywords, and characters of one
_DATE = re.compile(r"(\d{4})(?:[-:/]?(\d{2})(?:[-:/]?(\d{2}))?)?(?!\d)")


@travels
@dataclass(frozen=True, slots=True)
class Metadata:
    """What a picture's file (EXIF, IPTC, XMP) or its source says of it in words; None and () where it says nothing.

    Attributes:
        title: its headline or name.
        caption: what it shows.
        credit: agency or photographer.
        rights: licence or copyright notice, as stated.
        date: when it was made, ISO 8601 to the day, month or year.
        place: where, from small to large.
        keywords: as given, each once.
    """

    title: str | None = None
    caption: str | None = None
    credit: str | None = None
    rights: str | None = None
    date: str | None = None
    place: str | None = None
    keywords: tuple[str, ...] = ()

    def over(self, other: Metadata | None) -> Metadata:
        """Return these fields, and where they say nothing the other's."""
        return Metadata(*(getattr(self, f.name) or getattr(other, f.name, f.default) for f in fields(self)))


METADATA_TYPE = pa.struct(
    [
        column("title", pa.string(), "headline or name", nullable=True),
        column("caption", pa.string(), "what it shows", nullable=True),
        column("credit", pa.string(), "agency or photographer", nullable=True),
        column("rights", pa.string(), "licence or copyright notice, as stated", nullable=True),
        column("date", pa.string(), "when it was made, ISO 8601 to the day, month or year", nullable=True),
        column("place", pa.string(), "where, from small to large", nullable=True),
        column("keywords", pa.list_(pa.string()), "as given; empty: none"),
    ]
)


def plain_text(text: str, most: int = MAX_TEXT) -> str | None:
    """Return a text in one line without control characters, cut to `most` characters; None where nothing is left."""
    printable = "".join(" " if unicodedata.category(each)[0] in "CZ" else each for each in text[: 4 * most])
    return " ".join(printable.split())[:most].strip() or None


def day_of(text: str) -> str | None:
    """Return the date at the start of a text as ISO 8601 to the day, month or year; None where there is none."""
    found = _DATE.match(text.strip())
    if found is None:
        return None
    year, month, day = (part if part and int(part) else None for part in found.groups())
    try:
        date(int(year or 0), int(month or 1), int(day or 1))
    except ValueError:
        return None
    return "-".join(part for part in (year, month, day if month else None) if part)


def keywords_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return keywords in one line each, without empty and repeated ones."""
    return tuple(dict.fromkeys(word for each in words if (word := plain_text(each, MAX_KEYWORD))))[:MAX_KEYWORDS]


@travels
@dataclass(frozen=True, slots=True)
class Rights:
    """What a picture's file says of its rights; None where it says nothing.

    Attributes:
        creator: who made it; several, separated by semicolons.
        credit: the credit line.
        copyright: the notice, as stated.
        licence: URL or name of a licence, or of the statement of rights.
        terms: usage terms, as stated.
        source_type: IPTC's digital source type, such as `trainedAlgorithmicMedia` or `digitalCapture`.
        data_mining: PLUS data mining, such as `DMI-PROHIBITED-AIMLTRAINING`.
    """

    creator: str | None = None
    credit: str | None = None
    copyright: str | None = None
    licence: str | None = None
    terms: str | None = None
    source_type: str | None = None
    data_mining: str | None = None


RIGHTS_TYPE = pa.struct(
    [
        column("creator", pa.string(), "who made it", nullable=True),
        column("credit", pa.string(), "credit line", nullable=True),
        column("copyright", pa.string(), "notice, as stated", nullable=True),
        column("licence", pa.string(), "URL or name of the licence", nullable=True),
        column("terms", pa.string(), "usage terms, as stated", nullable=True),
        column("source_type", pa.string(), "IPTC digital source type, its last part", nullable=True),
        column("data_mining", pa.string(), "PLUS data mining, its last part", nullable=True),
    ]
)
