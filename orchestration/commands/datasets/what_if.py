from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from orchestration.commands.datasets.sample import as_example
from schemas.errors import UsageError
from schemas.lake import Folder, Lake
from schemas.manifest import read_manifest

if TYPE_CHECKING:
    from pipelines.exports.what_if import Dropped
    from training.report.examples import ExampleDocument


def command(
    reference: options.Reference,
    lake: options.LakePath,
    settings: options.Settings = None,
    examples: Annotated[int, typer.Option(min=1, max=100, help="Documents drawn of each reason, at most.")] = 6,
    output: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("what-if.html"),
) -> options.Summaries:
    """Show what other thresholds (`quality.*`, `documents.*`) would drop of a version, with pictures."""
    from pipelines.exports.what_if import Thresholds, what_if
    from training.report.examples import ExampleGroup
    from training.report.pages import shown_page
    from training.report.sections import Row, Table

    if not settings:
        raise UsageError("what-if: expected --set, such as --set quality.min_sharpness=100")
    manifest, folder = read_manifest(Lake.at(lake), reference)
    found = what_if(manifest, folder, Thresholds.of(manifest, settings), examples=examples)
    groups = [
        ExampleGroup(f"{what.capitalize()}: {reason}", tuple(_drawn(each, what, reason) for each in some))
        for (what, reason), some in found.examples.items()
    ]
    name = f"{manifest.dataset}@{manifest.version}"
    about = f"What {', '.join(settings)} would drop; at most {examples} documents of each reason are drawn."
    rows = tuple(Row(split, tuple(cells)) for split, *cells in found.rows())
    table = Table(("Split", "There are", "Would go", "Why"), rows)
    page = shown_page(groups, kicker="What if", title=name, about=about, table=table)
    Folder(str(output.parent)).write(output.name, page.encode())
    values = {"dataset": name, "page": str(output), **found.to_json()}
    yield [*table.lines(), f"{name}: {output}"], values


def _drawn(dropped: Dropped, what: str, reason: str) -> ExampleDocument:
    """Return a document as it is; of one that loses images, with what was found beside each of these."""
    shown = as_example(dropped.document)
    if what == "documents":
        return shown
    found = {number: told for number, (why, told) in dropped.images.items() if why == reason}
    notes = (found[number].partition(", ")[2] if number in found else "stays" for number in range(len(shown.images)))
    return replace(shown, concepts=tuple((note,) for note in notes))
