"""Which function reads which source of files, found by the class of its settings.

To add a source of files: a module of this package with its settings (a dataclass whose `inputs()` names what it reads)
and a `read` from them to candidate documents and failures, and a line here. Sources that fetch (Reddit, a live
MediaWiki) have steps of their own in `transforms.py`. How what a setting names is found is in `inputs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.files import input_file
from pipelines.sources import cite, clue, jsonl, mscoco, multi_retrieval, news, recipeqa, vist
from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.inputs import with_web_images
from pipelines.sources.records import WEB
from schemas.failures import Failure

READERS: Mapping[type, Callable[[Any], Iterator[CandidateDocument | Failure]]] = {
    cite.CiteSource: cite.read,
    clue.ClueSource: clue.read,
    jsonl.DocumentsSource: jsonl.read,
    mscoco.MscocoSource: mscoco.read,
    multi_retrieval.MultiRetrievalSource: multi_retrieval.read,
    news.NewsSource: news.read,
    recipeqa.RecipeqaSource: recipeqa.read,
    vist.VistSource: vist.read,
}


def read_source(source: Any) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents and failures of a source of files, whose settings `inputs.find_inputs` has gone through."""
    outcomes, images = READERS[type(source)](source), getattr(source, "images", "")
    yield from with_web_images(outcomes, images) if images.startswith(WEB) else outcomes


def image_root(source: Any) -> str:
    """Return the folder or archive that a source's image names are looked up in."""
    images: str = getattr(source, "images", "")
    if isinstance(source, jsonl.DocumentsSource) and not images:
        file = input_file(source.documents)
        return file.uri if file.member else str(Path(file.uri).absolute().parent)
    return images if images and not images.startswith(WEB) else "."
