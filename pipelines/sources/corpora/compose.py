"""CORPORA: what the readers share: names in files, and a document of texts and pictures.

The names in the files of other projects, for the readers and for the writers (`pipelines.exports`) alike.

    mmc4          JSON Lines: a document a line (Zhu et al. 2023)
    obelics       Parquet: a document a row, `images` and `texts` parallel, one of both null at each place
                  (Laurencon et al. 2023; MINT-1T's HTML documents)
    interleaved   Parquet: a text or an image a row (NeMo Curator; `INTERLEAVED_SCHEMA`)
    webdataset    tars: files of one key are a sample; a JSON with parallel `texts` and `images` is a document (MINT-1T)
    hf            Parquet or Arrow with Hugging Face's `Image` (`IMAGE_FEATURE`)

None of them has a place for all that a document of this project says. What is left goes into one more field, `EXTRAS`:
`extras_of` makes it, and a reader that finds it gives the same document back.

Texts and pictures in the order of a page, to a candidate document; and a document of ours, back from another format.

    "Cut the boards. Sand them."   picture   "Glue them."      sentences   0 1    2
                                                               image at        2

Running text is split into sentences. Where a document left this project (`EXTRAS`), every text is one sentence as
it stands, and everything else is as it was.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pyarrow as pa

from pipelines.files import INSIDE
from pipelines.settings import HttpConfig
from pipelines.sources.fields import Number, Real, typed
from pipelines.sources.records import CandidateDocument, CandidateImage, FieldError, rejected, sentence
from pipelines.sources.source import is_language
from pipelines.sources.text import paragraphs_of, split_sentences
from schemas.document_rows import from_row, layout_problem
from schemas.documents import Given, GivenLink, ImageRef, Link, Provenance, Role, Sentence, Split, numbers_of
from schemas.failures import Failure, Reason
from schemas.tables import clean
from schemas.versions import plain

EXTRAS = "multilink"
IMAGE_FEATURE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])


INTERLEAVED_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("modality", pa.string(), nullable=False),
        pa.field("content_type", pa.string()),
        pa.field("text_content", pa.string()),
        pa.field("binary_content", pa.large_binary()),
        pa.field("source_ref", pa.string()),
        pa.field("materialize_error", pa.string()),
    ]
)


def extras_of(row: Mapping[str, Any], images: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what goes beside a document in another project's format, as an object of JSON.

    Args:
        row: of a documents part (`schemas.documents.document_schema`), as Python values.
        images: rows of the images part by hash: at least `licence` and `metadata`.
    """
    shown = [images.get(image["hash"], {}) for image in row["images"]]
    return {
        "id": row["id"],
        "dataset": row["dataset"],
        "language": row["language"],
        "split": row["split"],
        "roles": [sentence["role"] for sentence in row["sentences"]],
        "images": [
            {**image, "licence": known.get("licence"), "metadata": known.get("metadata")}
            for image, known in zip(row["images"], shown, strict=True)
        ],
        "links": plain(from_row(row).links),
        "after_sentence": row.get("after_sentence"),
        "given_links": row.get("given_links"),
        "given_similarities": row.get("given_similarities"),
        "sentence_numbers": row.get("sentence_numbers"),
        "image_numbers": row.get("image_numbers"),
        "provenance": row["provenance"],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the readers of all formats are given.

    Attributes:
        dataset: name of the data set.
        root: folder that addresses of pictures are relative to.
        shards: folder that all shards are below.
        source: settings of the source, with the `language` of its texts.
        http: settings of the build, by which captured answers are judged.
    """

    dataset: str
    root: str
    shards: str
    source: Any
    http: HttpConfig = field(default_factory=HttpConfig)

    def address(self, file: str) -> str:
        """Return the address of a file, such as a shard, relative to the root; absolute where it is not below it."""
        return _below(self.root, file)

    def place(self, shard: str) -> str:
        """Return where a shard is below the folder of all shards: what ids of its records begin with."""
        return _below(self.shards, shard)


def _below(root: str, file: str) -> str:
    file = file.partition(INSIDE)[0]
    if "://" in root or "://" in file:
        return file.removeprefix(f"{root.rstrip('/')}/")
    path, folder = os.path.abspath(file), os.path.join(os.path.abspath(root), "")  # noqa: PTH100, PTH118
    return path.removeprefix(folder)


Piece = str | CandidateImage


def compose(
    pieces: Iterable[Piece],
    reading: Reading,
    record_id: str,
    *,
    url: str | None = None,
    language: str | None = None,
    extras: object = None,
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of running text and the pictures in it, or why there is none.

    Args:
        pieces: in the order of the page; a line break ends a paragraph.
        reading: of the corpus.
        record_id: the document's id.
        url: of its page.
        language: as the page says.
        extras: what this project wrote beside the document: then each piece of text is a sentence.
    """
    language = language if language and is_language(language) else reading.source.language
    if extras is not None:
        yield restored(list(pieces), reading, record_id, extras)
        return
    found = paragraphs_of(pieces)
    spoken = split_sentences(found.texts, language=language)
    sentences = tuple(sentence(text) for text in spoken.sentences)
    pictures = [replace(picture, after=spoken.before(paragraph)) for picture, paragraph in found.between]
    yield from document_of(sentences, pictures, reading, record_id, url=url, language=language)


def document_of(
    sentences: Sequence[Sentence],
    pictures: Sequence[CandidateImage],
    reading: Reading,
    record_id: str,
    *,
    own: str | None = None,
    url: str | None = None,
    language: str | None = None,
    links: tuple[Link, ...] | None = None,
    split: Split | None = None,
    given: Given | None = None,
    sentence_numbers: Sequence[int] = (),
    image_numbers: Sequence[int] = (),
) -> Iterator[CandidateDocument | Failure]:
    """Yield a document that has a sentence and a picture at least, or why there is none.

    `own` is its id in the corpus, where that is another: it may be the same in two shards. The numbers are those in the
    corpus's lists (`schemas.documents`), where some parts were left out.
    """
    if not sentences or not pictures:
        reason = Reason.TOO_FEW_IMAGES if sentences else Reason.TOO_FEW_SENTENCES
        yield rejected(record_id, reason, f"expected one of each, found {len(sentences)} and {len(pictures)} pictures")
        return
    yield CandidateDocument(
        id=record_id,
        dataset=reading.dataset,
        sentences=tuple(sentences),
        images=tuple(pictures),
        links=links,
        provenance=Provenance(reading.dataset, own or record_id, url),
        language=language or reading.source.language,
        split=split,
        given=given,
        sentence_numbers=numbers_of(sentence_numbers),
        image_numbers=numbers_of(image_numbers),
    )


def value_of(field: object) -> Any:
    """Return what a field says that is JSON text in one release of a corpus and a value in another; None of no JSON."""
    try:
        return json.loads(field) if isinstance(field, str) else field
    except (ValueError, RecursionError):
        return None


def object_of(field: object) -> dict[str, Any]:
    """Return the object that such a field holds, an empty one where it holds none."""
    value = value_of(field)
    return value if isinstance(value, dict) else {}


def parallel(record: Mapping[str, Any], kind: Any) -> tuple[list[Any], list[str | None]]:
    """Return the images and the texts of a document, which are parallel lists.

    Args:
        record: of the document.
        kind: of what stands for an image.

    Raises:
        FieldError: they are not.
    """
    images = typed(value_of(record.get("images")), list[kind], "$.images")
    texts = typed(value_of(record.get("texts")), list[str | None], "$.texts")
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
        numbers = [each for each in typed(index, list[int | None], "$.image_index") if each is not None]
        if sorted(numbers) != list(range(len(pictures))):
            raise FieldError(Reason.BROKEN_RECORD, f"image_index: expected each of {len(pictures)} pictures once")
        placed = dict(zip(numbers, pictures, strict=True))
        pictures = [placed[each] for each in range(len(pictures))]
    return [*(piece for piece in pieces if isinstance(piece, str)), *pictures]


class _Extras(msgspec.Struct):
    """What `extras_of` gives."""

    id: str
    language: str
    roles: list[Role]
    images: list[ImageRef]
    provenance: Provenance
    split: Split | None = None
    links: list[Link] | None = None
    after_sentence: list[int | None] = []
    given_links: list[GivenLink] | None = None
    given_similarities: tuple[Real, ...] = ()
    sentence_numbers: tuple[Number, ...] = ()
    image_numbers: tuple[Number, ...] = ()


def restored(pieces: Sequence[Piece], reading: Reading, record_id: str, extras: object) -> CandidateDocument:
    """Return the document that this project wrote in another format.

    Args:
        pieces: its sentences in order, and its pictures in document order.
        reading: of the corpus.
        record_id: where it is, for messages.
        extras: see `extras_of`.

    Raises:
        FieldError: they do not fit together.
    """
    about = typed(extras, _Extras, f"$.{EXTRAS}")
    texts = [piece.removesuffix("\n") for piece in pieces if isinstance(piece, str)]
    pictures = [piece for piece in pieces if isinstance(piece, CandidateImage)]
    after = about.after_sentence or [None] * len(pictures)
    if problem := _misfit(about, len(texts), len(pictures)) or layout_problem(
        after, sentences=len(texts), images=len(pictures)
    ):
        raise FieldError(Reason.BROKEN_RECORD, f"$.{EXTRAS}: {problem}")
    return CandidateDocument(
        id=about.id or record_id,
        dataset=reading.dataset,
        sentences=tuple(Sentence(clean(text), role) for text, role in zip(texts, about.roles, strict=True)),
        images=tuple(
            CandidateImage(picture.uri, said.source, said.licence, said.metadata, place, said.hash)
            for picture, said, place in zip(pictures, about.images, after, strict=True)
        ),
        links=None if about.links is None else tuple(about.links),
        provenance=about.provenance,
        language=about.language,
        split=about.split,
        given=None if about.given_links is None else Given(tuple(about.given_links), about.given_similarities),
        sentence_numbers=about.sentence_numbers,
        image_numbers=about.image_numbers,
    )


def _misfit(about: _Extras, texts: int, images: int) -> str:
    """Return what of a document's extras does not fit its texts and pictures; empty: nothing."""
    if (len(about.roles), len(about.images)) != (texts, images):
        return f"expected {len(about.roles)} texts and {len(about.images)} pictures, found {texts} and {images}"
    for link in (*(about.links or ()), *(about.given_links or ())):
        if not (0 <= link.sentence < texts and 0 <= link.image < images):
            return f"link [{link.sentence}, {link.image}] leads outside {texts} sentences and {images} images"
    if len(about.given_similarities) not in (0, texts * images):
        return f"expected {texts * images} similarities, found {len(about.given_similarities)}"
    for numbers, parts in ((about.sentence_numbers, texts), (about.image_numbers, images)):
        if len(numbers) not in (0, parts) or list(numbers) != sorted({*numbers}):
            return f"expected {parts} ascending numbers, found {list(numbers)[:20]}"
    return ""
