"""Which function reads which source, and which of its settings name what it reads.

To add a source of files: its settings (a dataclass), a function from them to drafts and failures in a module of this
package, and a line here. Sources that fetch (Reddit, a live MediaWiki) have steps of their own in `transforms.py`. How
what a setting names is found, be it a folder, an archive or a URL, is in `inputs.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import cast
from urllib.parse import quote

from pipelines.config import DiySource, DocumentsSource, MultiRetrievalSource, Source
from pipelines.sources.article_settings import ImageclefSource, NewsSource, WikipediaSource
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.crowd_settings import MscocoSource, VistSource
from pipelines.sources.labelled_settings import CiteSource, ClueSource, RecipeqaSource
from pipelines.sources.openings import input_file
from schemas.failures import Failure

WEB = ("http://", "https://")


class Form(StrEnum):
    """How what a setting names is read, and so what it may be."""

    FILE = "file"  # streamed: in a folder, in an archive, compressed
    FILES = "files"  # the same, all that there are
    TREE = "tree"  # a folder or an archive, read as a whole
    ARRAY = "array"  # mapped into memory: a plain file
    IMAGES = "images"  # files by name: a folder, a tar, a zip, or the address of a folder on the web


@dataclass(frozen=True, slots=True)
class Input:
    """A setting that names what a source reads.

    Attributes:
        published: the names it has where it is published, the likeliest first; `{...}` is a property of the source.
        is_needed: whether the source can do nothing without it.
    """

    name: str
    form: Form = Form.FILE
    published: tuple[str, ...] = ()
    is_needed: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """How a source is read.

    Attributes:
        function: `module:function` in this package, imported when it is used; empty: its steps are in `transforms.py`.
        needs_all: whether every needed input must be given, and not just one of them.
    """

    function: str
    inputs: tuple[Input, ...]
    needs_all: bool = True


def _needed(name: str, *published: str, form: Form = Form.FILE) -> Input:
    return Input(name, form, published, is_needed=True)


_IMAGES = Input("images", Form.IMAGES)
READERS: Mapping[type, Reader] = {
    DiySource: Reader("", (_needed("dump", "RS_*", form=Form.FILES),)),
    DocumentsSource: Reader("jsonl:read_source", (_needed("documents", "documents.jsonl", "*.jsonl"), _IMAGES)),
    MultiRetrievalSource: Reader(
        "multi_retrieval:read_source",
        (
            _needed("documents", "docs.json"),
            _needed("id2row", "id2row.json"),
            _needed("features", "features.npy", form=Form.ARRAY),
        ),
    ),
    MscocoSource: Reader(
        "mscoco:read_mscoco",
        (_needed("captions", "captions_train2014.json"), _needed("images", form=Form.IMAGES)),
    ),
    VistSource: Reader(
        "vist:read_vist",
        (*(_needed(split, f"{split}.{{annotations}}.json") for split in ("train", "val", "test")), _IMAGES),
        needs_all=False,
    ),
    RecipeqaSource: Reader(
        "recipeqa:read_recipeqa", (_needed("train", "train.json"), _needed("val", "val.json"), _IMAGES), needs_all=False
    ),
    CiteSource: Reader(
        "cite:read_cite", (_needed("train", "data.csv", "train.csv"), Input("test", published=("test.csv",)), _IMAGES)
    ),
    ClueSource: Reader(
        "clue:read_clue",
        (
            _needed("train", "conceptual_train_dis.csv"),
            Input("test", published=("conceptual_test_dis.csv",)),
            Input("numbers", published=("img2idxmap.json",)),
            _IMAGES,
        ),
    ),
    ImageclefSource: Reader(
        "imageclef:read_imageclef", (_needed("texts", form=Form.TREE), Input("metadata", Form.TREE), _IMAGES)
    ),
    WikipediaSource: Reader("", (Input("titles", published=("titles.txt",)),)),
    NewsSource: Reader(
        "news:read_news",
        (
            _needed("articles", "{published_name}"),
            Input("splits", published=("img_splits.json",)),
            Input("urls", published=("img_urls.json",)),
            _IMAGES,
        ),
    ),
}


def read_source(source: Source) -> Iterator[CandidateDocument | Failure]:
    """Yield the drafts and failures of a source of files, whose settings `inputs.find_inputs` has gone through."""
    module, _, function = READERS[type(source)].function.partition(":")
    read = getattr(importlib.import_module(f"pipelines.sources.{module}"), function)
    images = getattr(source, "images", "")
    for outcome in read(source):
        yield (
            _on_the_web(outcome, images)
            if isinstance(outcome, CandidateDocument) and images.startswith(WEB)
            else outcome
        )


def path_settings(source: Source) -> frozenset[str]:
    """Return the settings of a source that say where its files lie, and not what they are."""
    return frozenset(given.name for given in READERS[type(source)].inputs)


def image_root(source: Source) -> str:
    """Return the folder or archive that a source's image names are looked up in."""
    images = cast(str, getattr(source, "images", ""))
    if isinstance(source, DocumentsSource) and not images:
        file = input_file(source.documents)
        return file.uri if file.member else str(Path(file.uri).absolute().parent)
    return images if images and not images.startswith(WEB) else "."


def web_address(root: str, name: str) -> str:
    """Return the URL of a file below a folder on the web, or where `{name}` says if the folder's URL has that."""
    quoted = quote(name, safe="/")
    return root.replace("{name}", quoted) if "{name}" in root else f"{root.rstrip('/')}/{quoted}"


def _on_the_web(draft: CandidateDocument, root: str) -> CandidateDocument:
    uris = (uri if uri.startswith(WEB) else web_address(root, uri) for uri in draft.image_uris)
    return replace(draft, image_uris=tuple(uris))
