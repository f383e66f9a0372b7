"""A page of documents of a version: a random sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pipelines.exports.reading import ShownDocument, sample_of
from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from training.report.examples import ExampleDocument
from training.report.pages import documents_page


@dataclass(frozen=True, slots=True)
class DocumentsPage:
    """An HTML page of documents, with what it says in lines and for a machine."""

    html: str
    lines: list[str]
    values: dict[str, Any]

    def write(self, path: Path) -> None:
        """Write the page to a file; its folder is made if missing."""
        Folder(str(path.parent)).write(path.name, self.html.encode())


def sample_page(
    manifest: Manifest, folder: Folder, *, count: int, seed: int, splits: Sequence[Split] = tuple(Split)
) -> DocumentsPage:
    """Return a page of a random sample of a version's documents, split by split."""
    drawn = sample_of(manifest, folder, count=count, seed=seed, splits=splits)
    ordered = sorted(drawn, key=lambda each: list(Split).index(each.row["split"]))
    by_split = groupby(ordered, lambda each: each.row["split"])
    groups = {f"{name}".capitalize(): [*map(_example, some)] for name, some in by_split}
    total = sum(manifest.splits[each].documents for each in splits)
    about = f"{len(drawn):,} of {total:,} documents, drawn at random with seed {seed}."
    html = documents_page(groups, kicker="A sample", title=manifest.reference, about=about)
    values = {"dataset": manifest.reference, "documents": [each.row["id"] for each in drawn]}
    return DocumentsPage(html, [f"{manifest.reference}: {len(drawn)} of {total} documents"], values)


def _example(document: ShownDocument) -> ExampleDocument:
    """Return a document as the reports draw it, with the links it has."""
    links = document.row["links"]
    return ExampleDocument(
        id=document.row["id"],
        sentences=tuple(sentence["text"] for sentence in document.row["sentences"]),
        images=tuple(picture["jpeg"] for picture in document.pictures),
        links=None if links is None else tuple((link["sentence"], link["image"]) for link in links),
        is_predicted=False,
    )
