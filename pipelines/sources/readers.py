"""Which function reads which source, and which of its settings name the files it reads.

To add a source of files: its settings (a dataclass), a function from them to drafts and failures in a module of this
package, and a line here. Sources that fetch (Reddit, a live MediaWiki) have steps of their own in `transforms.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pipelines.config import DiySource, DocumentsSource, MultiRetrievalSource, Source
from pipelines.documents.draft import Draft
from pipelines.sources.article_settings import ImageclefSource, NewsSource, WikipediaSource
from pipelines.sources.crowd_settings import MscocoSource, VistSource
from pipelines.sources.labelled_settings import CiteSource, ClueSource, RecipeqaSource
from schemas.errors import UsageError
from schemas.failures import Failure


@dataclass(frozen=True, slots=True)
class Reader:
    """How a source of files is read.

    Attributes:
        function: `module:function` in this package, imported when it is used.
        needed: settings of which at least one path must be given, all of them where `needs_all`.
        optional: further settings that name a path.
        needs_all: whether every needed setting must be given.
    """

    function: str
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()
    needs_all: bool = True


READERS: Mapping[type, Reader] = {
    DocumentsSource: Reader("jsonl:read_source", ("documents",)),
    MultiRetrievalSource: Reader("multi_retrieval:read_source", ("documents", "id2row", "features")),
    MscocoSource: Reader("mscoco:read_mscoco", ("captions", "images")),
    VistSource: Reader("vist:read_vist", ("train", "val", "test"), ("images",), needs_all=False),
    RecipeqaSource: Reader("recipeqa:read_recipeqa", ("train", "val"), ("images",), needs_all=False),
    CiteSource: Reader("cite:read_cite", ("train",), ("test", "images")),
    ClueSource: Reader("clue:read_clue", ("train",), ("test", "numbers", "images")),
    ImageclefSource: Reader("imageclef:read_imageclef", ("texts",), ("metadata", "images")),
    WikipediaSource: Reader("wikipedia:fetch_article", (), ("titles",)),  # fetched: its steps are in `transforms.py`
    NewsSource: Reader("news:read_news", ("articles",), ("images",)),
}


def read_source(source: Source) -> Iterator[Draft | Failure]:
    """Yield the drafts and failures of a source of files."""
    module, _, function = READERS[type(source)].function.partition(":")
    read = getattr(importlib.import_module(f"pipelines.sources.{module}"), function)
    yield from read(source)


def input_paths(source: Source) -> dict[str, list[Path]]:
    """Return the paths a source of files names, by setting; each exists.

    Raises:
        UsageError: a setting that is needed is empty, or a path is not there.
    """
    reader = READERS[type(source)]
    found = {name: _paths(source, name) for name in (*reader.needed, *reader.optional)}
    missing = [name for name in reader.needed if not found[name]]
    if missing and (reader.needs_all or len(missing) == len(reader.needed)):
        raise UsageError(f"source.{missing[0]}: expected the path of a file; --set source.{missing[0]}=PATH")
    for name, paths in found.items():
        for path in paths:
            if not path.exists():
                raise UsageError(f"source.{name} = {str(path)!r}: no such file")
    return found


def path_settings(source: Source) -> frozenset[str]:
    """Return the settings of a source that say where its files lie, and not what they are."""
    if isinstance(source, DiySource):
        return frozenset({"dump"})
    reader = READERS[type(source)]
    return frozenset((*reader.needed, *reader.optional))


def image_root(source: Source) -> str:
    """Return the folder or archive that a source's image names are looked up in."""
    if isinstance(source, DocumentsSource):
        return str(Path(source.documents).absolute().parent)
    return cast(str, getattr(source, "images", "")) or "."


def _paths(source: Source, name: str) -> list[Path]:
    value = getattr(source, name)
    return [Path(path) for path in ((value,) if isinstance(value, str) else value) if path]
