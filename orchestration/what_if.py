"""The command `datasets what-if`: what other thresholds would drop of a version, counted and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.sample import as_example
from pipelines.options import JsonOption, LakeOption, SetOption
from schemas.console import Console
from schemas.errors import UsageError
from schemas.lake import Folder, Lake
from schemas.manifest import read_manifest

if TYPE_CHECKING:
    from pipelines.exports.what_if import Dropped
    from training.report.examples import ExampleDocument


def what_if(
    reference: Annotated[str, typer.Argument(help="NAME[@VERSION]")],
    lake: LakeOption,
    settings: SetOption = None,
    examples: Annotated[int, typer.Option(min=1, max=100, help="Documents drawn of each reason, at most.")] = 6,
    output: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("what-if.html"),
    is_json: JsonOption = False,
) -> None:
    """Show what other thresholds (`quality.*`, `documents.*`) would drop of a version, with pictures."""
    from pipelines.exports.what_if import Thresholds
    from pipelines.exports.what_if import what_if as tried
    from training.report.examples import ExampleGroup
    from training.report.pages import shown_page

    if not settings:
        raise UsageError("what-if: expected --set, such as --set quality.min_sharpness=100")
    manifest, folder = read_manifest(Lake.at(lake), reference)
    found = tried(manifest, folder, Thresholds.of(manifest, settings), examples=examples)
    groups = [
        ExampleGroup(f"{what.capitalize()}: {reason}", tuple(_drawn(each, what, reason) for each in some))
        for (what, reason), some in found.examples.items()
    ]
    name = f"{manifest.dataset}@{manifest.version}"
    about = f"What {', '.join(settings)} would drop; at most {examples} documents of each reason. " + "; ".join(
        " ".join(line.split()) for line in found.lines()
    )
    page = shown_page(groups, kicker="What if", title=name, about=about)
    Folder(str(output.parent)).write(output.name, page.encode())
    values = {"dataset": name, "page": str(output), **found.to_json()}
    Console(is_json=is_json).summarise([*found.lines(), f"{name}: {output}"], values)


def _drawn(dropped: Dropped, what: str, reason: str) -> ExampleDocument:
    """Return a document that goes as it is; of one that loses images, these, with what was found of each."""
    from training.report.examples import ExampleDocument

    if what == "documents":
        return as_example(dropped.document)
    shown = {number: told for number, (why, told) in dropped.images.items() if why == reason}
    return ExampleDocument(
        id=dropped.document.row["id"],
        auc=None,
        sentences=(),
        images=tuple(dropped.document.pictures[number]["jpeg"] for number in shown),
        predicted=(),
        links=None,
        concepts=tuple((told.partition(", ")[2] or told,) for told in shown.values()),
        is_predicted=False,
    )
