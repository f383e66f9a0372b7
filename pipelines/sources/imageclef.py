"""The ImageCLEF 2010/2011 Wikipedia collection: articles, and images that say which articles they illustrate.

    metadata/<d>/<id>.xml     <image id="82531" file="images/9/82531.jpg"><name>..</name>
                                <text xml:lang="en"><description/><comment/>
                                  <caption article="text/en/1/302887">..</caption></text>
                                <comment/><license/></image>
    text/<language>/<d>/<id>.xml     one article in wiki markup
    images/<d>/<id>.jpg              read at the images stage, by the `file` above

The link leads from the image to the article: it is inverted first, for one language, in memory (about 200 bytes an
image: 50 MB for all 237,434), and the articles then stream past. Both trees may be folders, tars or zips, with or
without `all_text/` before the paths. Links between sentences and images are unknown.
"""

from __future__ import annotations

import html
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.entities import html5

from pipelines.sources.article_settings import ImageclefSource
from pipelines.sources.candidate import CandidateDocument, stated
from pipelines.sources.fields import FieldError
from pipelines.sources.openings import BrokenInputError
from pipelines.sources.sentences import split_sentences
from pipelines.sources.trees import read_tree
from pipelines.sources.wikitext import WikitextError, strip_markup
from schemas.documents import Provenance, Sentence
from schemas.failures import Failure, Reason, Stage

DATASET = "wiki"
SOURCE = "imageclef-wikipedia"
_METADATA_PATH = re.compile(r"(?:.*/)?(metadata/[^/]+/[^/]+\.xml)")
_ARTICLE_PATH = re.compile(r"(?:.*/)?(text/([^/]+)/[^/]+/([^/]+))\.xml")
_ARTICLE_KEY = re.compile(r"text/([^/]+)/[^/]+/[^/]+")
_ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]*;)")
_OWN_ENTITIES = frozenset({"amp;", "lt;", "gt;", "quot;", "apos;"})
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER = re.compile(r"[0-9]{1,18}")
_ABOUT = frozenset({"title", "name", "id"})


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """What an image's metadata say.

    Attributes:
        file: path of the image in the collection.
        articles: paths of the articles it illustrates, without `.xml`, in all languages, each once.
        licence: as written there; None where it is blank.
    """

    id: str
    file: str
    articles: tuple[str, ...]
    licence: str | None = None


def read_imageclef(source: ImageclefSource, *, min_images: int = 1) -> Iterator[CandidateDocument | Failure]:
    """Yield the articles of a language with their images in the order of image ids, and what cannot be used.

    Articles come in the order of their paths (from a tar: in its own); failures of metadata come before them,
    NOT_FOUND of articles that only metadata know after them. Metadata that name no article of the language are no
    failure: the collection is in three languages.

    Args:
        min_images: articles with fewer are not split into sentences: TOO_FEW_IMAGES.

    Raises:
        FileNotFoundError: there is no such folder or archive.
    """
    images = _Images()
    yield from _collect_images(source, images)
    seen: set[str] = set()
    for file in _files(source.texts, _ARTICLE_PATH):
        if isinstance(file, Failure):
            yield file
        elif file.match.group(2) == source.language:
            yield _article(file, source=source, images=images, seen=seen, min_images=min_images)
    for key in sorted(images.by_article.keys() - seen):
        yield _failure(key.rpartition("/")[2], Reason.NOT_FOUND, f"images name the article {key}, which is not there")


def parse_metadata(data: bytes) -> ImageRecord:
    """Return what an image's metadata file says; bytes that are not UTF-8 become U+FFFD.

    Raises:
        FieldError: it is no XML, is no `image` (BROKEN_RECORD), or lacks its `id` or `file` (MISSING_FIELD).
    """
    root = _xml(_text(data))
    if _local(root) != "image":
        raise FieldError(Reason.BROKEN_RECORD, f"expected an element 'image', found {_local(root)!r}")
    record_id, file = ((root.get(name) or "").strip() for name in ("id", "file"))
    if not record_id or not file:
        missing = "file" if record_id else "id"
        raise FieldError(Reason.MISSING_FIELD, f"expected the attribute {missing!r} of 'image', found none")
    named = (caption.get("article", "").strip().removesuffix(".xml") for caption in root.iter("caption"))
    element = root.find("license")
    licence = "" if element is None else " ".join("".join(element.itertext()).split())
    return ImageRecord(record_id, file, tuple(dict.fromkeys(name for name in named if name)), licence or None)


def article_wikitext(data: bytes) -> str:
    """Return the wiki markup in an article's file: its `text` element, or all of it where there is no XML around it.

    Raises:
        FieldError: it begins as XML and is not (BROKEN_RECORD).
    """
    text = _text(data)
    start = text.lstrip()
    try:
        root = _xml(text) if start.startswith("<") else None
    except FieldError:
        if start.startswith("<?xml"):
            raise
        root = None  # markup may begin with a tag or a comment, too
    if root is None:
        return text
    element = next((element for element in root.iter() if _local(element) == "text"), root)
    # A reference or a gallery that was not escaped is an element here: it goes back to being markup.
    for part in element.iter():
        part.tag = _local(part)
    inner = (ET.tostring(child, encoding="unicode") for child in element if child.tag not in _ABOUT)
    return (element.text or "") + "".join(inner)


@dataclass(slots=True)
class _Images:
    """Which images name an article of one language.

    Attributes:
        by_article: (image id, file) of each, by article path.
        licences: by file, where one is stated.
    """

    by_article: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    licences: dict[str, str] = field(default_factory=dict)

    def add(self, record: ImageRecord, language: str) -> None:
        for key in record.articles:
            found = _ARTICLE_KEY.fullmatch(key)
            if found is not None and found.group(1) == language:
                self.by_article.setdefault(key, []).append((record.id, record.file))
                if record.licence:
                    self.licences[record.file] = sys.intern(record.licence)

    def of(self, key: str) -> tuple[str, ...]:
        """Return the files of an article's images in the order of their ids, each once."""
        named = sorted(self.by_article.get(key, ()), key=_numbers_first)
        return tuple(dict.fromkeys(file for _, file in named))


@dataclass(frozen=True, slots=True)
class _File:
    match: re.Match[str]
    data: bytes


def _collect_images(source: ImageclefSource, images: _Images) -> Iterator[Failure]:
    seen: set[str] = set()
    for file in _files(source.metadata or source.texts, _METADATA_PATH):
        if isinstance(file, Failure):
            yield file
            continue
        path = file.match.group(1)
        try:
            record = parse_metadata(file.data)
        except FieldError as problem:
            yield problem.failure(path)
            continue
        if record.id in seen:
            yield _failure(path, Reason.DUPLICATE_RECORD, f"expected one image {record.id}, found another")
        else:
            seen.add(record.id)
            images.add(record, source.language)


def _article(
    file: _File, *, source: ImageclefSource, images: _Images, seen: set[str], min_images: int
) -> CandidateDocument | Failure:
    """Return the draft of an article, or why there is none; remember that it was seen."""
    key, _, record_id = file.match.groups()
    uris = images.of(key)
    if key in seen:
        return _failure(record_id, Reason.DUPLICATE_RECORD, f"expected one article {key}, found another")
    seen.add(key)
    if len(uris) < min_images:
        message = f"expected at least {min_images} images that name {key}, found {len(uris)}"
        return _failure(record_id, Reason.TOO_FEW_IMAGES, message)
    try:
        paragraphs = strip_markup(article_wikitext(file.data), skip_sections=source.skip_sections)
    except FieldError as problem:
        return problem.failure(record_id)
    except WikitextError as problem:
        return Failure(Stage.SOURCES, record_id, Reason.BROKEN_RECORD, str(problem), type(problem).__name__)
    sentences = split_sentences(
        paragraphs, limit=source.max_sentences, language=source.language, model=source.sentence_model
    )
    if not sentences:
        return _failure(record_id, Reason.EMPTY_DOCUMENT, f"expected text in {key}, found none")
    return CandidateDocument(
        id=record_id,
        dataset=DATASET,
        sentences=tuple(map(Sentence, sentences)),
        image_uris=uris,
        links=None,
        provenance=Provenance(SOURCE, key),
        language=source.language,
        image_licences=stated(map(images.licences.get, uris)),
    )


def _files(root: str, pattern: re.Pattern[str]) -> Iterator[_File | Failure]:
    """Yield the files of a tree whose path matches, then why the rest cannot be read, if so."""
    try:
        for path, data in read_tree(root, wanted=lambda path: pattern.fullmatch(path) is not None):
            match = pattern.fullmatch(path)
            if match is not None:
                yield _File(match, data)
    except BrokenInputError as problem:
        yield problem.failure()


def _text(data: bytes) -> str:
    return data.decode("utf-8-sig", errors="replace")


def _xml(text: str) -> ET.Element:
    """Return the root of a document in which HTML's named characters and control characters do no harm.

    Raises:
        FieldError: BROKEN_RECORD.
    """
    try:
        return ET.fromstring(_NOT_XML.sub("\ufffd", _ENTITY.sub(_plain_entity, text)).strip())
    except (ET.ParseError, RecursionError) as error:
        raise FieldError(Reason.BROKEN_RECORD, f"expected XML: {error}") from error


def _plain_entity(found: re.Match[str]) -> str:
    """Return the character of HTML's named entities, which XML does not know; XML's own stay as they are."""
    name = found.group(1)
    if name in _OWN_ENTITIES:
        return found.group()
    return html.escape(html5[name]) if name in html5 else f"&amp;{name}"


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _numbers_first(image: tuple[str, str]) -> tuple[int, str, str]:
    record_id, file = image
    return int(record_id) if _NUMBER.fullmatch(record_id) else 0, record_id, file


def _failure(record_id: str, reason: Reason, message: str) -> Failure:
    return Failure(Stage.SOURCES, record_id, reason, message)
