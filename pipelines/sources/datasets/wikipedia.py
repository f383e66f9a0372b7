"""The data set `wiki`: articles of ImageCLEF's collection, or of a live MediaWiki (`pipelines.sources.wikipedia`).

The ImageCLEF 2010/2011 Wikipedia collection: articles, and images that say which articles they illustrate.

    metadata/<d>/<id>.xml     <image id="82531" file="images/9/82531.jpg"><name>..</name>
                                <text xml:lang="en"><description/><comment/>
                                  <caption article="text/en/1/302887">..</caption></text>
                                <comment/><license/></image>
    text/<language>/<d>/<id>.xml     one article in wiki markup
    images/<d>/<id>.jpg              read at the images stage, by the `file` above

The link leads from the image to the article: it is inverted first, for one language, in memory (about 300 bytes an
image: 70 MB for all 237,434), and the articles then stream past. Both trees may be folders, tars or zips, with or
without `all_text/` before the paths. Links between sentences and images are unknown.
"""

from __future__ import annotations

import html
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from html.entities import html5
from typing import ClassVar, NamedTuple

from pipelines.files import BrokenInputError, read_tree
from pipelines.recipe import BuildConfig, without_limits
from pipelines.settings import NO_LIMIT, DocumentsConfig
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    outcomes_of,
    rejected,
    sentence,
    utf8,
)
from pipelines.sources.source import IMAGES, Context, Input, Language, Outcomes, Source, input_path
from pipelines.sources.text import split_sentences
from pipelines.sources.wikipedia.articles import file_key, strip_markup
from pipelines.sources.wikipedia.live import WikipediaSource
from schemas.configs import PositiveInt
from schemas.documents import Provenance
from schemas.failures import Failure, Reason

DATASET = "wiki"
SOURCE = "imageclef-wikipedia"
_ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]*;)")
_OWN_ENTITIES = frozenset({"amp;", "lt;", "gt;", "quot;", "apos;"})
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ABOUT = frozenset({"title", "name", "id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageclefSource(Source):
    """The ImageCLEF 2010/2011 Wikipedia collection (SPEC 2, `wiki`; H suppl. 1).

    Attributes:
        texts: path of what holds the articles, `text/<language>/<d>/<id>.xml`: a folder, a tar or a zip.
        metadata: path of the images' metadata, `metadata/<d>/<id>.xml`; empty: the same as `texts`.
        images: path of the folder or tar that image addresses (`images/<d>/<id>.jpg`) are relative to.
        language: of the articles that are kept.
        max_sentences: how many are kept, from the first.
    """

    inputs: ClassVar = (Input("texts", "tree", is_needed=True), Input("metadata", "tree"), IMAGES)
    texts: str = input_path("")
    metadata: str = input_path("")
    images: str = input_path("")
    language: Language = "en"
    max_sentences: PositiveInt = 100

    def read_shard(self, shard: str, context: Context) -> Iterator[Article | Failure]:
        """Yield the articles, and failures."""
        return read_articles(self, min_images=context.min_images)

    def complete(self, article: Article, context: Context) -> Outcomes:
        """Yield the document of an article, or why there is none."""
        return with_sentences(article, source=self)


@dataclass(frozen=True, slots=True, order=True)
class NamedImage:
    """An image that names an article; those of one article are ordered by the number that is their id.

    Attributes:
        file: path of the image in the collection.
        licence: as written in its metadata; None where that is blank.
        name: under which articles show it; empty where its metadata do not say.
    """

    number: int
    id: str
    file: str
    licence: str | None = None
    name: str = ""


class Article(NamedTuple):
    """A document without its sentences, the file that has them, and the names that it gives the document's images."""

    document: CandidateDocument
    data: bytes
    image_names: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.document.id


def read_articles(source: ImageclefSource, *, min_images: int) -> Iterator[Article | Failure]:
    """Yield the articles of a language with their images in the order of image ids, and what cannot be used.

    Articles come in the order of their paths (from a tar: in its own); failures of metadata come before them,
    NOT_FOUND of articles that only metadata know after them. Metadata that name no article of the language are no
    failure: the collection is in three languages.

    Args:
        min_images: articles with fewer are TOO_FEW_IMAGES.

    Raises:
        NotFoundError: there is no such folder or archive.
    """
    named: dict[str, list[NamedImage]] = {}
    image_ids: set[str] = set()
    seen: set[str] = set()

    def read_metadata(data: bytes, _: str) -> Iterator[Failure]:
        image, articles = parse_metadata(data)
        if image.id in image_ids:
            raise FieldError(Reason.DUPLICATE_RECORD, f"image {image.id} occurs twice")
        image_ids.add(image.id)
        for key in articles:
            if key.startswith(f"text/{source.language}/"):
                named.setdefault(key, []).append(image)
        yield from ()

    def read_article(data: bytes, key: str) -> Iterator[Article]:
        images = sorted(named.get(key, ()))
        if key in seen:
            raise FieldError(Reason.DUPLICATE_RECORD, f"expected one article {key}, found another")
        seen.add(key)
        if len(images) < min_images:
            message = f"expected at least {min_images} images that name {key}, found {len(images)}"
            raise FieldError(Reason.TOO_FEW_IMAGES, message)
        by_file = {image.file: image for image in images}
        candidate = CandidateDocument(
            id=key.rpartition("/")[2],
            dataset=DATASET,
            sentences=(),
            images=tuple(CandidateImage(file, licence=image.licence) for file, image in by_file.items()),
            links=None,
            provenance=Provenance(SOURCE, key),
            language=source.language,
        )
        yield Article(candidate, data, tuple(image.name for image in by_file.values()))

    metadata = re.compile(r"(?:.*/)?(metadata/[^/]+/[^/]+\.xml)")
    texts = re.compile(rf"(?:.*/)?(text/{source.language}/[^/]+/[^/]+)\.xml")
    yield from outcomes_of(_files(source.metadata or source.texts, metadata), read_metadata)
    yield from outcomes_of(_files(source.texts, texts), read_article)
    for key in sorted(named.keys() - seen):
        yield rejected(key, Reason.NOT_FOUND, f"images name the article {key}, which is not there")


def with_sentences(article: Article, *, source: ImageclefSource) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of an article with the sentences of its text, or why there is none."""
    return outcomes_of([(article.document.provenance.record_id, article)], partial(_split, source))


def _split(source: ImageclefSource, article: Article, _: str) -> Iterator[CandidateDocument]:
    """Yield an article's document: an image stands where the text first names it, if it does."""
    markup, limit = strip_markup(article_wikitext(article.data)), source.max_sentences
    text = split_sentences(markup.texts, limit=limit, language=source.language)
    paragraphs: dict[str, int] = {}
    for file, paragraph in markup.between:
        paragraphs.setdefault(file.key, paragraph)
    images = tuple(
        replace(image, after=text.before(paragraphs[key]) if (key := file_key(name)) in paragraphs else None)
        for image, name in zip(article.document.images, article.image_names, strict=True)
    )
    yield replace(article.document, sentences=tuple(map(sentence, text.sentences)), images=images)


def parse_metadata(data: bytes) -> tuple[NamedImage, frozenset[str]]:
    """Return the image of a metadata file, and the paths of the articles it names, without `.xml`, in all languages.

    Raises:
        FieldError: it is not UTF-8 or no `image` (BROKEN_RECORD), or lacks its `id` or `file` (MISSING_FIELD).
        ParseError: it is no XML.
    """
    root = _parse_xml(utf8(data))
    record_id, file = ((root.get(name) or "").strip() for name in ("id", "file"))
    if root.tag != "image" or not record_id or not file:
        raise FieldError(Reason.MISSING_FIELD, f"expected an 'image' with an 'id' and a 'file', found {root.tag!r}")
    licence = " ".join("".join(element.text or "" for element in root.findall("license")).split())
    named = (caption.get("article", "").strip().removesuffix(".xml") for caption in root.iter("caption"))
    number = int(record_id) if record_id.isdecimal() and len(record_id) < 19 else 0
    name = (root.findtext("name") or "").strip()
    return NamedImage(number, record_id, file, sys.intern(licence) if licence else None, name), frozenset(named)


def article_wikitext(data: bytes) -> str:
    """Return the wiki markup in an article's file: its `text` element, or all of it where there is no XML around it.

    Raises:
        FieldError: BROKEN_RECORD: it is not UTF-8, or has a document type definition, which no article needs.
        ParseError: it says that it is XML, and is not.
        RecursionError: its elements are nested too deep.
    """
    text = utf8(data)
    if not text.lstrip().startswith("<"):
        return text
    try:
        root = _parse_xml(text)
    except ET.ParseError:
        if text.lstrip().startswith("<?xml"):
            raise
        return text  # markup may begin with a tag or a comment, too
    for part in root.iter():
        part.tag = part.tag.rpartition("}")[2]
    # A reference or a gallery that was not escaped is an element here: it goes back to being markup.
    element = next(root.iter("text"), root)
    inner = (ET.tostring(child, encoding="unicode") for child in element if child.tag not in _ABOUT)
    return (element.text or "") + "".join(inner)


def _files(root: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, bytes | FieldError]]:
    """Yield what the pattern finds in the paths of a tree, with the file's bytes, or why it has none."""
    for path, data in read_tree(root, wanted=lambda path: pattern.fullmatch(path) is not None):
        record = FieldError(Reason.BROKEN_RECORD, str(data)) if isinstance(data, BrokenInputError) else data
        yield pattern.sub(r"\1", path), record


class _NoDefinitions(ET.TreeBuilder):
    def doctype(self, *_: object) -> None:
        raise FieldError(Reason.BROKEN_RECORD, "expected XML without a document type definition")


def _parse_xml(text: str) -> ET.Element:
    """Return the root of a document in which HTML's named characters and control characters do no harm."""
    plain = _NOT_XML.sub("\ufffd", _ENTITY.sub(_plain_entity, text)).strip()
    return ET.fromstring(plain, ET.XMLParser(target=_NoDefinitions()))


def _plain_entity(found: re.Match[str]) -> str:
    """Return the character of HTML's named entities, which XML does not know; XML's own stay as they are."""
    name = found[1]
    if name in _OWN_ENTITIES:
        return found[0]
    return html.escape(html5[name]) if name in html5 else f"&amp;{name}"


def wiki() -> BuildConfig:
    """Wikipedia articles of the ImageCLEF collection: no link is known."""
    thresholds = DocumentsConfig(min_sentences=10, min_images=3, min_long_sentences=0, max_images=NO_LIMIT)
    return without_limits("wiki", ImageclefSource(), thresholds)


def wiki_live() -> BuildConfig:
    """Articles of a live MediaWiki, by a list of titles or a category, with their Commons images."""
    return replace(wiki(), source=WikipediaSource())


RECIPES = {"wiki": wiki, "wiki-live": wiki_live}
