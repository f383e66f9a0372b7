from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from schemas.documents import Split
from schemas.lake import Folder

if TYPE_CHECKING:
    from pipelines.exports.reading import ShownDocument
    from training.report.examples import ExampleDocument


def command(
    version: options.Version,
    documents: Annotated[int, typer.Option(min=1, max=1000, help="Number of documents at most.")] = 12,
    split: Annotated[
        str | None, typer.Option(callback=options.known_split, help="train, val or test; all by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other documents.")] = 0,
    output: options.HtmlFile = Path("sample.html"),
) -> options.Summaries:
    """Write a page of a random sample of a version: sentences, pictures and known links."""
    from pipelines.exports.reading import sample_of
    from training.report.pages import documents_page

    splits = tuple(Split) if split is None else (Split(split),)
    _, manifest, folder = version()
    drawn = sample_of(manifest, folder, count=documents, seed=seed, splits=splits)
    ordered = sorted(drawn, key=lambda each: list(Split).index(each.row["split"]))
    by_split = groupby(ordered, lambda each: each.row["split"])
    groups = {f"{name}".capitalize(): [*map(as_example, some)] for name, some in by_split}
    count = sum(manifest.splits[each].documents for each in splits)
    about = f"{len(drawn):,} of {count:,} documents, drawn at random with seed {seed}."
    page = documents_page(groups, kicker="A sample", title=manifest.reference, about=about)
    Folder(str(output.parent)).write(output.name, page.encode())
    values = {"dataset": manifest.reference, "documents": [each.row["id"] for each in drawn], "page": str(output)}
    yield [f"{manifest.reference}: {len(drawn)} of {count} documents: {output}"], values


def as_example(document: ShownDocument) -> ExampleDocument:
    """Return a document as the reports draw it, with the links it has."""
    from training.report.examples import ExampleDocument

    links = document.row["links"]
    return ExampleDocument(
        id=document.row["id"],
        sentences=tuple(sentence["text"] for sentence in document.row["sentences"]),
        images=tuple(picture["jpeg"] for picture in document.pictures),
        links=None if links is None else tuple((link["sentence"], link["image"]) for link in links),
        is_predicted=False,
    )
