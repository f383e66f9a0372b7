"""DOCUMENT and IMAGE: the two parts of a shard.

A document is ordered sentences, ordered image references, and links that are unknown, empty or known: these three
states stay apart everywhere, as `None`, `()` (there is none), and a non-empty tuple. The dataclasses are what stages
pass along; `document_schema` is what a documents part holds, and `document_rows` turns one into the other.

Where a source knows its layout, `after_sentence` says of each image how many of the document's sentences stand wholly
before it: 0 is before the first, n behind the last. An image beside a sentence (the caption below it, the step it
shows, the paragraph it is set in) stands before that sentence:

    sentences          0     1     2
    image stands at   0     1     2     3        beside sentence 1: at 1

The number refers to the sentences that the document has in the end. A sentence that was left out is not counted, an
image behind the last sentence that was kept is at n, and the images that stay keep their numbers when others go. It is
null where the order of the sentences tells nothing (shuffled, with distractors). In posts, recipes and stories it is
nearly the ground truth: it is for evaluation, and no objective is ever shown it.

Inside a row, links and places go by a part's index in the row. A sentence that was blank and an image that cannot be
had are not in it, and those behind them move up. Every other table, answer and message (predicted links, decisions,
labels, failures) goes by a part's number: its index, from 0, in the lists that the document was read from.

    sentences that were read   "  "  s1  s2          sentence_numbers   1, 2       null where nothing was left out
    images that were read      a     -   c           image_numbers      0, 2

A corpus that was linked by a model before it came here (MMC4 by CLIP) keeps what it was given: `given_links`, and
`given_similarities` of all pairs where the corpus has them. They are a baseline, never ground truth: that is `links`.

An images part holds every image the same-numbered documents part refers to, once, with its features as columns. `jpeg`
is the picture a person or a later extractor can use: orientation applied, RGB, shorter side 256 px. A data set made
from feature vectors alone (`multi-retrieval`) has no pixels: the picture columns are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

import pyarrow as pa

from schemas.features import FeatureColumn, image_fields, sentence_fields
from schemas.metadata import METADATA_TYPE, RIGHTS_TYPE, Metadata, Rights
from schemas.tables import column, table_schema, travels

UNDETERMINED = "und"
SHORTER_SIDE_PX = 256
AFTER_SENTENCE = "after_sentence"
GIVEN_LINKS, GIVEN_SIMILARITIES = "given_links", "given_similarities"
SENTENCE_NUMBERS, IMAGE_NUMBERS = "sentence_numbers", "image_numbers"


class Split(StrEnum):
    TRAIN = "train"
    VAL = "val"
    TEST = "test"


class Role(StrEnum):
    """What a text is to its document (Liu 2020 for the first four; `sentence` everywhere else)."""

    HEADLINE = "headline"
    LEAD = "lead"
    CAPTION = "caption"
    BODY = "body"
    SENTENCE = "sentence"


@travels
@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    role: Role = Role.SENTENCE


@travels
@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image of a document: the SHA-256 of its original bytes, and where it came from.

    Attributes:
        licence: where the source states one. It is kept in the images part, not with the document.
        metadata: what the source says of the picture, likewise.
    """

    hash: str
    source: str | None = None
    licence: str | None = None
    metadata: Metadata | None = None


@travels
@dataclass(frozen=True, slots=True, order=True)
class Link:
    """Sentence `sentence` goes with image `image` (both count from 0); relations are true, false or unknown."""

    sentence: int
    image: int
    relations: tuple[tuple[str, bool | None], ...] = ()


@travels
@dataclass(frozen=True, slots=True)
class GivenLink:
    """A corpus says that sentence `sentence` goes with image `image`, with its similarity where it tells one."""

    sentence: int
    image: int
    similarity: float | None = None


@travels
@dataclass(frozen=True, slots=True)
class Given:
    """What a corpus says of a document's n sentences and m images, by a model of its own.

    Attributes:
        links: its assignment.
        similarities: n x m, by sentence and then by image; empty where the corpus does not tell them.
    """

    links: tuple[GivenLink, ...]
    similarities: tuple[float, ...] = ()

    def of_kept(self, sentences: Sequence[int], images: Sequence[int], *, images_before: int) -> Given:
        """Return what it says of some sentences and images, which are numbered again in the given order.

        Args:
            sentences: the old numbers of those that are kept.
            images: likewise.
            images_before: how many images there were.
        """
        new_text, new_image = indexes(sentences), indexes(images)
        links = (
            GivenLink(new_text[link.sentence], new_image[link.image], link.similarity)
            for link in self.links
            if link.sentence in new_text and link.image in new_image
        )
        cells = (self.similarities[text * images_before + image] for text in sentences for image in images)
        return Given(tuple(links), tuple(cells) if self.similarities else ())


@travels
@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a document came from.

    Attributes:
        retrieved: when its page was fetched, ISO 8601 in UTC. It is no part of what the document is: neither compared,
            nor digested, nor in a row; it goes into the lake's `retrievals/` (`schemas.raw`).
        captured: address that its page was asked for at, likewise.
    """

    source: str
    record_id: str
    url: str | None = None
    licence: str | None = None
    retrieved: str | None = field(default=None, compare=False, repr=False)
    captured: str | None = field(default=None, compare=False, repr=False)


@travels
@dataclass(frozen=True, slots=True)
class Document:
    """What a row of a documents part holds.

    Attributes:
        after_sentence: of each image, how many sentences stand before it (see the module), None where unknown; empty:
            unknown of all.
        given: what the corpus it came from says of it; None: nothing.
        sentence_numbers: of each sentence, its number (see the module); empty: its index.
        image_numbers: of each image, likewise.
    """

    id: str
    dataset: str
    sentences: tuple[Sentence, ...]
    images: tuple[ImageRef, ...]
    links: tuple[Link, ...] | None
    provenance: Provenance
    language: str = UNDETERMINED
    split: Split | None = None
    after_sentence: tuple[int | None, ...] = ()
    given: Given | None = None
    sentence_numbers: tuple[int, ...] = ()
    image_numbers: tuple[int, ...] = ()

    def with_images(self, kept: Sequence[int]) -> Document:
        """Return the document with some of its images alone, by their numbers in order: links and places follow them.

        images of before    a   b   c   d          b goes: kept is 0, 2, 3
        images that stay    a       c   d          links renumber: 0 -> 0, 2 -> 1, 3 -> 2
        stand at            0   1   1   3          sentences stay: 0, 1, 3
        """
        new, numbers = indexes(kept), self.image_numbers or range(len(self.images))
        links, after = self.links, self.after_sentence
        return replace(
            self,
            images=tuple(self.images[old] for old in kept),
            links=links and tuple(replace(link, image=new[link.image]) for link in links if link.image in new),
            after_sentence=tuple(after[old] for old in kept) if after else (),
            given=self.given and self.given.of_kept(range(len(self.sentences)), kept, images_before=len(self.images)),
            image_numbers=numbers_of(numbers[old] for old in kept),
        )


def numbers_of(kept: Iterable[int]) -> tuple[int, ...]:
    """Return the numbers of parts as a `Document` has them: empty where each is its index."""
    numbers = tuple(kept)
    return () if numbers == tuple(range(len(numbers))) else numbers


def indexes(numbers: Sequence[int]) -> Mapping[int, int]:
    """Return the index of each part by its number.

    >>> indexes([0, 2])
    {0: 0, 2: 1}
    """
    return {number: index for index, number in enumerate(numbers)}


_SENTENCE = pa.struct(
    [column("text", pa.string(), "the sentence"), column("role", pa.string(), "role in the document")]
)
_IMAGE_REF = pa.struct(
    [
        column("hash", pa.string(), "SHA-256 (hex) of the original bytes; key of the images part"),
        column("source", pa.string(), "URL or path it came from", nullable=True),
    ]
)
_RELATION = pa.struct(
    [column("name", pa.string(), "relation"), column("value", pa.bool_(), "null: unknown", nullable=True)]
)
_LINK = pa.struct(
    [
        column("sentence", pa.int32(), "index into sentences", unit="from 0"),
        column("image", pa.int32(), "index into images", unit="from 0"),
        column("relations", pa.list_(_RELATION), "named yes/no labels of this link; empty: none given"),
    ]
)
_GIVEN_LINK = pa.struct(
    [
        column("sentence", pa.int32(), "index into sentences", unit="from 0"),
        column("image", pa.int32(), "index into images", unit="from 0"),
        column("similarity", pa.float32(), "as the corpus tells it", nullable=True),
    ]
)
_STATEMENT = pa.struct(
    [
        column("source", pa.string(), "URL or path", nullable=True),
        column("licence", pa.string(), "licence stated there", nullable=True),
        column("metadata", METADATA_TYPE, "what is said there", nullable=True),
    ]
)
_PROVENANCE = pa.struct(
    [
        column("source", pa.string(), "source that gave the record"),
        column("record_id", pa.string(), "the record's own id there"),
        column("url", pa.string(), "address a person can open", nullable=True),
        column("licence", pa.string(), "licence where known", nullable=True),
    ]
)


def document_schema(features: Iterable[FeatureColumn] = ()) -> pa.Schema:
    """Return the schema of a documents part with these feature columns."""
    columns = [
        column("id", pa.string(), "unique in the data set"),
        column("dataset", pa.string(), "name of the data set"),
        column("language", pa.string(), "BCP 47 code; `und` where unknown"),
        column("split", pa.string(), "train, val or test"),
        column("sentences", pa.list_(_SENTENCE), "in document order"),
        column("images", pa.list_(_IMAGE_REF), "in document order"),
        column("links", pa.list_(_LINK), "ground truth; null: unknown; empty: known, none", nullable=True),
        column("provenance", _PROVENANCE, "where it came from"),
        column(
            AFTER_SENTENCE,
            pa.list_(pa.int32()),
            "of each image, how many sentences stand before it in the layout; null: unknown",
            unit="sentences",
            is_added=True,
        ),
        column(
            GIVEN_LINKS,
            pa.list_(_GIVEN_LINK),
            "links that the corpus came with, by a model of its own; no ground truth; null: none came",
            is_added=True,
        ),
        column(
            GIVEN_SIMILARITIES,
            pa.list_(pa.float32()),
            "of every pair, by sentence and then by image, as the corpus tells them; null: it does not",
            is_added=True,
        ),
        column(
            SENTENCE_NUMBERS,
            pa.list_(pa.int32()),
            "of each sentence, its index in the list it was read from, which other tables go by; null: its own index",
            unit="from 0",
            is_added=True,
        ),
        column(IMAGE_NUMBERS, pa.list_(pa.int32()), "of each image, likewise", unit="from 0", is_added=True),
    ]
    return table_schema("documents", 1, [*columns, *sentence_fields(features)])


@travels
@dataclass(frozen=True, slots=True)
class ImageStatement:
    """What is stated of an image at one of its addresses."""

    source: str | None
    licence: str | None
    metadata: Metadata | None


@travels
@dataclass(frozen=True, slots=True)
class Image:
    """What is known of one image before features.

    Attributes:
        fingerprint: perceptual hash in hexadecimal.
        licence: every one that is stated, sorted, separated by semicolons: which of them holds is not decided here.
        statements: all of them, where documents that show equal bytes state different things.
    """

    hash: str
    source: str | None = None
    format: str | None = None
    width: int | None = None
    height: int | None = None
    original_bytes: int | None = None
    fingerprint: str | None = None
    is_flat: bool = False
    licence: str | None = None
    metadata: Metadata | None = None
    rights: Rights | None = None
    statements: tuple[ImageStatement, ...] = ()

    @property
    def all_statements(self) -> tuple[ImageStatement, ...]:
        """Return what is stated of it: its own fields where that is one thing."""
        return self.statements or (ImageStatement(self.source, self.licence, self.metadata),)

    def with_statements(self, statements: Iterable[ImageStatement]) -> Image:
        """Return the image with what is stated of it: the smallest address, and the metadata that say most."""
        several = sorted(set(statements), key=repr)
        return replace(
            self,
            source=min((each.source for each in several if each.source), default=None),
            licence="; ".join(sorted({each.licence for each in several if each.licence})) or None,
            metadata=max(
                (each.metadata for each in several if each.metadata),
                default=None,
                key=lambda each: (sum(bool(getattr(each, field.name)) for field in fields(each)), repr(each)),
            ),
            statements=tuple(several) if len(several) > 1 else (),
        )


def image_schema(features: Iterable[FeatureColumn] = ()) -> pa.Schema:
    """Return the schema of an images part with these feature columns."""
    columns = [
        column("hash", pa.string(), "SHA-256 (hex) of the original bytes"),
        column("source", pa.string(), "URL or path it came from", nullable=True),
        column("format", pa.string(), "format of the original: jpeg, png, gif, webp ...", nullable=True),
        column("width", pa.int32(), "of the original, orientation applied", nullable=True, unit="px"),
        column("height", pa.int32(), "of the original, orientation applied", nullable=True, unit="px"),
        column("original_bytes", pa.int64(), "size of the original file", nullable=True, unit="bytes"),
        column(
            "fingerprint",
            pa.string(),
            "perceptual hash (hex) by the manifest's fingerprint name",
            nullable=True,
        ),
        column("is_flat", pa.bool_(), "one colour all over: left out of near-duplicate search"),
        column("licence", pa.string(), "licence where known; several that are stated, by semicolons", nullable=True),
        column("jpeg", pa.binary(), "RGB JPEG, shorter side 256 px", nullable=True),
        column("metadata", METADATA_TYPE, "what its source, its XMP, IPTC or EXIF says; null: nothing", is_added=True),
        column("rights", RIGHTS_TYPE, "what its file says of its rights; null: nothing", is_added=True),
        column(
            "statements",
            pa.list_(_STATEMENT),
            "what is stated at each address of equal bytes, where that differs",
            is_added=True,
        ),
    ]
    return table_schema("images", 1, [*columns, *image_fields(features)])


# What is known of a picture by its bytes alone.
KNOWN_COLUMNS = ("hash", "format", "width", "height", "original_bytes", "fingerprint", "is_flat", "metadata", "rights")
COPY_SCHEMA = pa.schema([image_schema().field(name) for name in (*KNOWN_COLUMNS, "jpeg")])
