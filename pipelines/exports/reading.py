"""A version as documents with their pictures: what every format is written from, a shard in memory at a time.

Some of them are drawn at random by their ids and a seed: the same draw on every machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pipelines.sources.corpora.compose import extras_of
from schemas.documents import AFTER_SENTENCE, Split, document_schema
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.messages import IntegrityError
from schemas.parts import Shard, read_part, split_parts

_PICTURE_COLUMNS = ("hash", "width", "height", "format", "licence", "metadata", "jpeg")


class Piece(NamedTuple):
    """One text or image of a page, by its number in the document, from 0."""

    kind: Literal["text", "image"]
    number: int


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A document with its pictures.

    Attributes:
        row: of `document_schema()`.
        pictures: of each image in document order: `hash`, `source` as in the document; `width`, `height`, `format` of
            the original, `licence`, `metadata`, and `jpeg`, the 256-px copy, None where the data set has no pixels.
    """

    row: Mapping[str, Any]
    pictures: Sequence[Mapping[str, Any]]

    @property
    def extras(self) -> dict[str, Any]:
        """Return what other projects' formats have no field for."""
        return extras_of(self.row, {picture["hash"]: picture for picture in self.pictures})

    def layout(self) -> Iterator[Piece]:
        """Yield its texts and images as they stand in the page; images of unknown place come last.

        sentences          0     1     2
        after_sentence    1, 2, 2, null         s0  i0  s1  i1  i2  s2  i3
        """
        texts, places = len(self.row["sentences"]), self.row[AFTER_SENTENCE] or [None] * len(self.pictures)
        for number in range(texts + 1):
            yield from (Piece("image", image) for image, place in enumerate(places) if place == number)
            if number < texts:
                yield Piece("text", number)
        yield from (Piece("image", image) for image, place in enumerate(places) if place is None)


def read_shard(shard: Shard, folder: Folder) -> Iterator[ShownDocument]:
    """Yield the documents of a shard, by id.

    Raises:
        IntegrityError: a part is damaged, or a document refers to an image that is not in the shard.
    """
    pictures = {row["hash"]: row for row in read_part(folder, shard.images, _PICTURE_COLUMNS).to_pylist()}
    table = read_part(folder, shard.documents, document_schema().names)  # an old part lacks what came later
    for batch in table.to_batches(max_chunksize=64):
        for row in batch.to_pylist():
            yield _shown({AFTER_SENTENCE: None, **row}, pictures)


def shards_of(manifest: Manifest) -> Iterator[Shard]:
    """Yield the shards of a version, split after split."""
    for split in Split:
        if manifest.parts("documents", split):
            yield from split_parts(manifest, split)


def _shown(row: Mapping[str, Any], pictures: Mapping[str, Mapping[str, Any]]) -> ShownDocument:
    missing = [image["hash"] for image in row["images"] if image["hash"] not in pictures]
    if missing:
        raise IntegrityError(f"document {row['id']}: image {missing[0]} is not in its shard")
    return ShownDocument(row, [{**pictures[image["hash"]], **image} for image in row["images"]])
