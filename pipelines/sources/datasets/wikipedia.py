"""The data set `wiki`: articles of ImageCLEF's collection, or of a live MediaWiki (`pipelines.sources.wikipedia`)."""

from dataclasses import replace

from pipelines.recipe import BuildConfig, without_limits
from pipelines.settings import NO_LIMIT, DocumentsConfig
from pipelines.sources.wikipedia.imageclef import ImageclefSource
from pipelines.sources.wikipedia.live import WikipediaSource


def wiki() -> BuildConfig:
    """Wikipedia articles of the ImageCLEF collection: no link is known."""
    thresholds = DocumentsConfig(min_sentences=10, min_images=3, min_long_sentences=0, max_images=NO_LIMIT)
    return without_limits("wiki", ImageclefSource(), thresholds)


def wiki_live() -> BuildConfig:
    """Articles of a live MediaWiki, by a list of titles or a category, with their Commons images."""
    return replace(wiki(), source=WikipediaSource())


RECIPES = {"wiki": wiki, "wiki-live": wiki_live}
