from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from orchestration.commands.datasets.sample import as_example
from schemas.errors import UsageError
from schemas.lake import Folder

if TYPE_CHECKING:
    from pipelines.exports.what_if import Dropped
    from training.report.examples import ExampleDocument


def command(
    version: options.Version,
    settings: options.Settings = None,
    examples: Annotated[
        int, typer.Option(min=1, max=100, help="Number of documents to draw for each reason, at most.")
    ] = 6,
    output: options.HtmlFile = Path("what-if.html"),
) -> options.Summaries:
    """Show what other thresholds (`quality.*`, `documents.*`) would drop of a version, with pictures."""
    from pipelines.exports.what_if import Thresholds, what_if
    from training.report.pages import documents_page
    from training.report.sections import Row, Table

    if not settings:
        raise UsageError("what-if: expected --set KEY=VALUE, such as --set quality.min_sharpness=100")
    _, manifest, folder = version()
    found = what_if(manifest, folder, Thresholds.of(manifest, settings), examples=examples)
    groups = {
        f"{what.capitalize()}: {reason}": [_drawn(each, what, reason) for each in some]
        for (what, reason), some in found.examples.items()
    }
    about = f"What {', '.join(settings)} would drop; at most {examples} documents of each reason are drawn."
    rows = tuple(Row(split, tuple(cells)) for split, *cells in found.rows())
    table = Table(("Split", "There are", "Would go", "Why"), rows)
    page = documents_page(groups, kicker="What if", title=manifest.reference, about=about, table=table)
    Folder(str(output.parent)).write(output.name, page.encode())
    values = {"dataset": manifest.reference, "page": str(output), **found.to_json()}
    yield [*table.lines(), f"{manifest.reference}: {output}"], values


def _drawn(dropped: Dropped, what: str, reason: str) -> ExampleDocument:
    """Return a document as it is; of one that loses images, with what was found beside each of these."""
    shown = as_example(dropped.document)
    if what == "documents":
        return shown
    found = {number: told for number, (why, told) in dropped.images.items() if why == reason}
    notes = (found[number].partition(", ")[2] if number in found else "stays" for number in range(len(shown.images)))
    return replace(shown, concepts=tuple((note,) for note in notes))
