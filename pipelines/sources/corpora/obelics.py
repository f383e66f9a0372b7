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

from pipelines.embedded import Cell
from pipelines.sources.corpora.compose import Piece, Reading, compose, object_of, value_of
from pipelines.sources.corpora.names import EXTRAS, Parallel
from pipelines.sources.corpora.rows import read_rows
from pipelines.sources.fields import text_or_none, typed
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, outcomes_of
from pipelines.tables import read_schema
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
    embedded = reading.address(shard) if has_pictures else ""
    yield from outcomes_of(records, partial(_outcomes, reading=reading, embedded=embedded))


def _outcomes(
    numbered: tuple[int, Mapping[str, Any]], record_id: str, *, reading: Reading, embedded: str
) -> Iterator[CandidateDocument | Failure]:
    row, record = numbered
    images, texts = parallel(record, str | None)
    listed = value_of(record.get(Parallel.METADATA))
    about = listed if isinstance(listed, list) and len(listed) == len(images) else [None] * len(images)
    pieces = list(_pieces(images, texts, about, embedded, row))
    url = text_or_none(record, Parallel.URL) or object_of(record.get(Parallel.GENERAL)).get("url")
    extras = value_of(record.get(EXTRAS))
    if extras is not None:
        pieces = in_document_order(pieces, record.get(Parallel.IMAGE_INDEX))
    yield from compose(pieces, reading, record_id, url=url if isinstance(url, str) else None, extras=extras)


def parallel(record: Mapping[str, Any], kind: Any) -> tuple[list[Any], list[str | None]]:
    """Return the images and the texts of a document, which are parallel lists.

    Args:
        record: of the document.
        kind: of what stands for an image.

    Raises:
        FieldError: they are not.
    """
    images = typed(record.get(Parallel.IMAGES), list[kind], f"$.{Parallel.IMAGES}")
    texts = typed(record.get(Parallel.TEXTS), list[str | None], f"$.{Parallel.TEXTS}")
    if len(texts) != len(images):
        found = f"{len(images)} images and {len(texts)} texts"
        raise FieldError(Reason.BROKEN_RECORD, f"expected parallel lists, found {found}")
    return images, texts


def in_document_order(pieces: list[Piece], index: object) -> list[Piece]:
    """Return texts in order, then pictures in document order.

    Args:
        pieces: in the order of the layout.
        index: of each piece, the picture's number in the document; None: they are in its order.
    """
    pictures = [piece for piece in pieces if isinstance(piece, CandidateImage)]
    if index is not None:
        numbers = [each for each in typed(index, list[int | None], f"$.{Parallel.IMAGE_INDEX}") if each is not None]
        if sorted(numbers) != list(range(len(pictures))):
            raise FieldError(Reason.BROKEN_RECORD, f"image_index: expected each of {len(pictures)} pictures once")
        placed = dict(zip(numbers, pictures, strict=True))
        pictures = [placed[each] for each in range(len(pictures))]
    return [*(piece for piece in pieces if isinstance(piece, str)), *pictures]


def _pieces(
    images: list[str | None], texts: list[str | None], about: list[Any], shard: str, row: int
) -> Iterator[Piece]:
    """Yield texts and pictures; those are in a shard, "": none of them is."""
    for item, (image, text) in enumerate(zip(images, texts, strict=True)):
        if image is not None:
            address = str(Cell(shard, Parallel.PICTURES, row, item)) if shard else image.strip()
            yield CandidateImage(address, image.strip() or None if shard else None, metadata=_metadata(about[item]))
        if text is not None:
            yield f"{text}\n"


def _metadata(about: object) -> Metadata | None:
    caption = object_of(about).get("alt_text")
    text = plain_text(clean(caption)) if isinstance(caption, str) else None
    return Metadata(caption=text) if text else None
