"""Settings of the sources whose records are articles: the ImageCLEF Wikipedia collection, a live MediaWiki, and news.

They follow `pipelines.config` in form and rules, and import no framework. How many sentences and images a document
needs is a matter of the documents stage (`documents.min_sentences=10`, `documents.min_images=3` for `wiki`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from pipelines.sources.inputs import IMAGES, Form, Input, needed
from schemas.configs import require

WIKIMEDIA_WIDTHS_PX = (20, 40, 60, 120, 250, 330, 500, 960, 1280, 1920, 3840)  # others are refused (STACK, Sources)
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{1,8})*")


class ArticleApi(StrEnum):
    """Which of MediaWiki's two REST interfaces gives an article's HTML."""

    CORE = "core"  # /w/rest.php/v1/page/{title}/html: every MediaWiki since 1.35
    REST_V1 = "rest-v1"  # /api/rest_v1/page/html/{title}: Wikimedia's own


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageclefSource:
    """The ImageCLEF 2010/2011 Wikipedia collection (SPEC 2, `wiki`; H suppl. 1).

    Attributes:
        texts: path of what holds the articles, `text/<language>/<d>/<id>.xml`: a folder, a tar or a zip.
        metadata: path of what holds the images' metadata, `metadata/<d>/<id>.xml`; empty: the same as `texts`.
        images: path of the folder or tar that image addresses (`images/<d>/<id>.jpg`) are relative to.
        language: of the articles that are kept.
        max_sentences: the first so many are kept.
        sentence_model: name or path of an installed spaCy pipeline that splits sentences; empty: spaCy's rules.
        skip_sections: headings, compared without case, whose sections are left out ("references").
    """

    texts: str = ""
    metadata: str = ""
    images: str = ""
    language: str = "en"
    max_sentences: int = 100
    sentence_model: str = ""
    skip_sections: tuple[str, ...] = ()

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        return needed("texts", form=Form.TREE), Input("metadata", Form.TREE), IMAGES

    def __post_init__(self) -> None:
        _require_language(self.language)
        _require_sentences(self.max_sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class WikipediaSource:
    """Articles of a live MediaWiki (SPEC 2, `wiki`): those of a list of titles, of a category, or both.

    Attributes:
        base_url: of the wiki, without a path.
        titles: path of a text file, one title a line.
        category: its member articles, with or without `Category:` before it.
        category_depth: levels of subcategories whose members count, too.
        limit: articles taken from the category; 0: all.
        api: where an article's HTML is had.
        language: of the articles.
        licence: of the articles' text; images have their own.
        image_width_px: of the thumbnails, one of those Wikimedia serves.
        min_display_px: a picture shown narrower or lower than this is an icon, and left out.
        repositories: where on Wikimedia's image host a picture may lie (`/wikipedia/<repository>/`); empty: anywhere.
        max_sentences: the first so many are kept.
        sentence_model: as in `ImageclefSource`.
        skip_sections: as in `ImageclefSource`.
    """

    base_url: str = "https://en.wikipedia.org"
    titles: str = ""
    category: str = ""
    category_depth: int = 0
    limit: int = 0
    api: ArticleApi = ArticleApi.CORE
    language: str = "en"
    licence: str = "CC-BY-SA-4.0"
    image_width_px: int = 500
    min_display_px: int = 60
    repositories: tuple[str, ...] = ("commons",)
    max_sentences: int = 100
    sentence_model: str = ""
    skip_sections: tuple[str, ...] = ()

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        return (Input("titles", published=("titles.txt",)),)

    def __post_init__(self) -> None:
        _require_language(self.language)
        _require_sentences(self.max_sentences)
        parts = urlsplit(self.base_url)
        is_url = parts.scheme in ("http", "https") and bool(parts.netloc) and parts.path in ("", "/")
        require(is_url, field="source.base_url", value=self.base_url, rule="expected https://HOST, without a path")
        width = self.image_width_px
        allowed = ", ".join(map(str, WIKIMEDIA_WIDTHS_PX))
        require(width in WIKIMEDIA_WIDTHS_PX, field="source.image_width_px", value=width, rule=f"one of {allowed}")
        for name in ("category_depth", "limit", "min_display_px"):
            value = getattr(self, name)
            require(value >= 0, field=f"source.{name}", value=value, rule="must not be negative")


def _require_language(language: str) -> None:
    matches = _LANGUAGE.fullmatch(language) is not None
    require(matches, field="source.language", value=language, rule="expected a language code such as 'en'")


def _require_sentences(max_sentences: int) -> None:
    require(max_sentences >= 1, field="source.max_sentences", value=max_sentences, rule="must be at least 1")
