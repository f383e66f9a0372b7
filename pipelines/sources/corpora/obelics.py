"""OBELICS and MINT-1T's HTML documents: Parquet, a document a row (Laurencon et al. 2023, Awadalla et al. 2024).

    images             ["https://..", null, null]         URLs
    texts              [null, "Cut the boards. Sand them.", "Glue them."]
    metadata           '[{"src": "https://..", "document_url": "https://..", "alt_text": ".."}, null, null]'
    general_metadata   '{"url": "https://..", ..}'         MINT-1T has a column `url`; OmniCorpus has structs in both

At each place stands either a picture or a text of several paragraphs, in the order of the page. Pictures are fetched
from their URLs, or looked up by them in `source.images`; a column `pictures` of Hugging Face's `Image`, parallel to
`images`, holds them (this project's exports). Alternative texts are metadata of the pictures.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pipelines.files import INSIDE
from pipelines.sources.corpora.compose import Picture, Piece, Reading, compose, object_of, value_of
from pipelines.sources.corpora.rows import read_rows
from pipelines.sources.records import (
    CandidateDocument,
    FieldError,
    checked,
    outcomes_of,
    required,
    text_or_none,
)
from pipelines.tables import read_schema
from schemas.corpora import EXTRAS, Parallel
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata, plain_text
from schemas.tables import clean

_COLUMNS = (
    Parallel.IMAGES, Parallel.TEXTS, Parallel.METADATA, Parallel.GENERAL, Parallel.URL, Parallel.IMAGE_INDEX, EXTRAS,
)  # fmt: skip


def read_obelics(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    records = read_rows(shard, reading.place(shard), _COLUMNS, needed=(Parallel.IMAGES, Parallel.TEXTS))
    has_pictures = Parallel.PICTURES in read_schema(shard).names
    embedded = f"{reading.address(shard)}{INSIDE}{Parallel.PICTURES}" if has_pictures else ""
    yield from outcomes_of(records, partial(_outcomes, reading=reading, embedded=embedded))


def _outcomes(
    numbered: tuple[int, Mapping[str, Any]], record_id: str, *, reading: Reading, embedded: str
) -> Iterator[CandidateDocument | Failure]:
    row, record = numbered
    images, texts = required(record, Parallel.IMAGES, list), required(record, Parallel.TEXTS, list)
    listed = value_of(record.get(Parallel.METADATA))
    about = listed if isinstance(listed, list) and len(listed) == len(images) else [None] * len(images)
    pieces = list(_pieces(images, texts, about, f"{embedded}/{row}" if embedded else ""))
    url = text_or_none(record, Parallel.URL) or object_of(record.get(Parallel.GENERAL)).get("url")
    extras = record.get(EXTRAS)
    if extras is not None:
        extras = checked(value_of(extras), dict, EXTRAS)
        pieces = in_document_order(pieces, record.get(Parallel.IMAGE_INDEX))
    yield from compose(pieces, reading, record_id, url=url if isinstance(url, str) else None, extras=extras)


def in_document_order(pieces: list[Piece], index: object) -> list[Piece]:
    """Return texts in order, then pictures in document order.

    Args:
        pieces: in the order of the layout.
        index: of each piece, the picture's number in the document; None: they are in its order.
    """
    pictures = [piece for piece in pieces if isinstance(piece, Picture)]
    if index is not None:
        numbers = [each for each in checked(index, list, Parallel.IMAGE_INDEX) if each is not None]
        if sorted(numbers) != list(range(len(pictures))):
            raise FieldError(Reason.BROKEN_RECORD, f"image_index: expected each of {len(pictures)} pictures once")
        placed = dict(zip(numbers, pictures, strict=True))
        pictures = [placed[each] for each in range(len(pictures))]
    return [*(piece for piece in pieces if isinstance(piece, str)), *pictures]


def _pieces(images: list[Any], texts: list[Any], about: list[Any], embedded: str) -> Iterator[Piece]:
    if len(images) != len(texts):
        found = f"{len(images)} images and {len(texts)} texts"
        raise FieldError(Reason.BROKEN_RECORD, f"expected parallel lists, found {found}")
    for place, (image, text) in enumerate(zip(images, texts, strict=True)):
        if image is not None:
            source = checked(image, str, "an image").strip()
            address = f"{embedded}/{place}" if embedded else source
            yield Picture(address, source or None if embedded else None, metadata=_metadata(about[place]))
        if text is not None:
            yield f"{checked(text, str, 'a text')}\n"


def _metadata(about: object) -> Metadata | None:
    caption = object_of(about).get("alt_text")
    text = plain_text(clean(caption)) if isinstance(caption, str) else None
    return Metadata(caption=text) if text else None
