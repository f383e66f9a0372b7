"""Texts and pictures in the order of a page, to a candidate document; and a document of ours, back from another format.

    "Cut the boards. Sand them."   picture   "Glue them."      sentences   0 1    2
                                                               image at        2

Running text is split into sentences. Where a document left this project (`schemas.corpora.EXTRAS`), every text is one
sentence as it stands, and everything else is as it was.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.files import INSIDE
from pipelines.settings import HttpConfig
from pipelines.sources.inputs import is_language
from pipelines.sources.records import (
    CandidateDocument,
    FieldError,
    checked,
    number,
    optional,
    real,
    rejected,
    required,
    sentence,
    split_named,
    stated,
    text_or_none,
)
from pipelines.sources.text import paragraphs_of, split_sentences
from schemas.document_rows import is_placed, layout_problem
from schemas.documents import Given, GivenLink, Link, Provenance, Role, Sentence, numbers_of
from schemas.failures import Failure, Reason
from schemas.metadata import Metadata
from schemas.tables import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Settings of the readers of all formats; see `source.CorpusSource`.

    Attributes:
        dataset: name of the data set.
        root: folder that addresses of pictures are relative to.
        shards: folder that all shards are below.
        has_images: whether the user named a folder of pictures.
        files: all shards.
        http: settings of the build, by which captured answers are judged.
    """

    dataset: str
    root: str
    shards: str
    has_images: bool
    language: str
    sentence_model: str
    texts: str
    pictures: str
    keep_splits: bool
    skip_repeats: bool
    files: tuple[str, ...] = ()
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


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in the order of a page.

    Attributes:
        address: where it is: a URL, or relative to the root.
        source: where it came from, where that is another address.
    """

    address: str
    source: str | None = None
    licence: str | None = None
    metadata: Metadata | None = None


Piece = str | Picture


def compose(
    pieces: Iterable[Piece],
    reading: Reading,
    record_id: str,
    *,
    url: str | None = None,
    language: str | None = None,
    extras: Mapping[str, Any] | None = None,
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
    language = language if language and is_language(language) else reading.language
    if extras is not None:
        yield restored(list(pieces), reading, record_id, extras)
        return
    found = paragraphs_of(pieces)
    spoken = split_sentences(found.texts, language=language, model=reading.sentence_model)
    sentences = tuple(sentence(text) for text in spoken.sentences)
    pictures = [picture for picture, _ in found.between]
    after = tuple(spoken.before(paragraph) for _, paragraph in found.between)
    yield from document_of(sentences, pictures, reading, record_id, url=url, language=language, after=after)


def document_of(
    sentences: Sequence[Sentence],
    pictures: Sequence[Picture],
    reading: Reading,
    record_id: str,
    *,
    own: str | None = None,
    url: str | None = None,
    language: str | None = None,
    after: tuple[int | None, ...] = (),
    links: tuple[Link, ...] | None = None,
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
        image_uris=tuple(picture.address for picture in pictures),
        links=links,
        provenance=Provenance(reading.dataset, own or record_id, url),
        language=language or reading.language,
        image_licences=stated(picture.licence for picture in pictures),
        after_sentence=after,
        image_metadata=stated(picture.metadata for picture in pictures),
        image_sources=stated(picture.source for picture in pictures),
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


def restored(pieces: Sequence[Piece], reading: Reading, record_id: str, extras: Mapping[str, Any]) -> CandidateDocument:
    """Return the document that this project wrote in another format.

    Args:
        pieces: its sentences in order, and its pictures in document order.
        reading: of the corpus.
        record_id: where it is, for messages.
        extras: see `schemas.corpora.extras_of`.

    Raises:
        FieldError: they do not fit together.
    """
    texts = [piece.removesuffix("\n") for piece in pieces if isinstance(piece, str)]
    pictures = [piece for piece in pieces if isinstance(piece, Picture)]
    roles, images = required(extras, "roles", list), required(extras, "images", list)
    if (len(roles), len(images)) != (len(texts), len(pictures)):
        found = f"{len(texts)} texts and {len(pictures)} pictures"
        raise FieldError(Reason.BROKEN_RECORD, f"expected {len(roles)} texts and {len(images)} pictures, found {found}")
    about = [checked(image, dict, "an image") for image in images]
    after = tuple(
        None if place is None else checked(place, int, "a place") for place in _list(extras, "after_sentence")
    )
    if after and (problem := layout_problem(after, sentences=len(texts), images=len(pictures))):
        raise FieldError(Reason.BROKEN_RECORD, problem)
    kept = required(extras, "provenance", dict)
    return CandidateDocument(
        id=required(extras, "id", str) or record_id,
        dataset=reading.dataset,
        sentences=tuple(Sentence(clean(text), _role(role)) for text, role in zip(texts, roles, strict=True)),
        image_uris=tuple(picture.address for picture in pictures),
        links=None if extras.get("links") is None else tuple(_links(extras, len(texts), len(pictures))),
        provenance=Provenance(
            required(kept, "source", str),
            required(kept, "record_id", str),
            text_or_none(kept, "url"),
            text_or_none(kept, "licence"),
        ),
        language=required(extras, "language", str),
        split=split_named(extras.get("split"), "split"),
        image_licences=stated(text_or_none(image, "licence") for image in about),
        after_sentence=after if is_placed(after) else (),
        image_metadata=stated(_metadata(image) for image in about),
        image_sources=stated(text_or_none(image, "source") for image in about),
        given=_given(extras, len(texts), len(pictures)),
        sentence_numbers=_numbers(extras, "sentence_numbers", len(texts)),
        image_numbers=_numbers(extras, "image_numbers", len(pictures)),
    )


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    return optional(fields, name, list[Any]())


def _numbers(extras: Mapping[str, Any], name: str, parts: int) -> tuple[int, ...]:
    """Return the numbers of a document's parts, which ascend."""
    numbers = [checked(value, int, name) for value in _list(extras, name)]
    if len(numbers) not in (0, parts) or numbers != sorted({*numbers}) or min(numbers, default=0) < 0:
        raise FieldError(Reason.BROKEN_RECORD, f"{name}: expected {parts} ascending numbers from 0")
    return tuple(numbers)


def _role(value: object) -> Role:
    if value not in list(Role):
        raise FieldError(Reason.BROKEN_RECORD, f"role: expected one of {', '.join(Role)}, found {value!r:.60}")
    return Role(str(value))


def _pair(fields: object, texts: int, images: int) -> tuple[int, int]:
    link = checked(fields, dict, "a link")
    pair = number(link, "sentence"), number(link, "image")
    if not (pair[0] < texts and pair[1] < images):
        raise FieldError(Reason.BAD_LINK, f"link {list(pair)} leads outside {texts} sentences and {images} images")
    return pair


def _links(extras: Mapping[str, Any], texts: int, images: int) -> Iterator[Link]:
    for fields in _list(extras, "links"):
        pair = _pair(fields, texts, images)
        named = (checked(each, dict, "a relation") for each in _list(fields, "relations"))
        yield Link(*pair, tuple((required(each, "name", str), _boolean(each.get("value"))) for each in named))


def _boolean(value: object) -> bool | None:
    return None if value is None else checked(value, bool, "a relation's value")


def _given(extras: Mapping[str, Any], texts: int, images: int) -> Given | None:
    if extras.get("given_links") is None:
        return None
    links = [
        GivenLink(*_pair(fields, texts, images), similarity(fields, "similarity"))
        for fields in _list(extras, "given_links")
    ]
    cells = tuple(real(cell, "a similarity") for cell in _list(extras, "given_similarities"))
    if len(cells) not in (0, texts * images):
        raise FieldError(Reason.BROKEN_RECORD, f"expected {texts * images} similarities, found {len(cells)}")
    return Given(tuple(links), cells)


def similarity(fields: Mapping[str, Any], name: str) -> float | None:
    """Return a similarity, None where it is absent or null (raises as `real` does)."""
    return None if fields.get(name) is None else real(fields[name], name)


def _metadata(image: Mapping[str, Any]) -> Metadata | None:
    fields = image.get("metadata")
    if fields is None:
        return None
    words = [checked(word, str, "a keyword") for word in _list(checked(fields, dict, "metadata"), "keywords")]
    names = ("title", "caption", "credit", "rights", "date", "place")
    return Metadata(**{name: text_or_none(fields, name) for name in names}, keywords=tuple(words))
