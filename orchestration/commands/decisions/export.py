from __future__ import annotations

from shlex import join
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from orchestration.commands.decisions.list import opened_log
from schemas.documents import Split
from schemas.lake import Folder, Lake

if TYPE_CHECKING:
    from orchestration.decisions.export import Exported


def command(
    lake: options.LakePath,
    output: Annotated[str, typer.Option(metavar="DIR", help="Folder for documents.jsonl and the pictures.")],
    store: options.Store = "",
    split: Annotated[
        str | None, typer.Option(help="Put all documents into train, val or test; by default the build divides them.")
    ] = None,
    as_pairs: Annotated[
        bool,
        typer.Option("--pairs", help="A document for each chosen picture, without others: for objectives of pairs."),
    ] = False,
) -> options.Summaries:
    """Write what was decided as documents with links, which `multilink build documents` reads.

    Chosen pictures are linked to every text of their article; pictures rejected as not fitting stand beside them
    without a link; corrected links replace those of their document.
    """
    from orchestration.decisions.export import export

    chosen = None if split is None else Split(options.known_split(split))
    with opened_log(lake, store) as log:
        made = export(log, Lake.at(lake), Folder(output), split=chosen, as_pairs=as_pairs)
    yield _export_lines(made, lake), made.to_json() | {"build": build_arguments(made, lake)}


def build_arguments(made: Exported, lake: str) -> list[str]:
    """Return the arguments of `multilink` that build the data set of an export, with what models of it read."""
    from orchestration.decisions.export import DATASET

    features = ",".join(f'"{name}"' for name in made.features)
    settings = [
        f"dataset={DATASET}",
        f"source.documents={made.path}",
        *([f"features.images=[{features}]"] * bool(features)),
    ]
    return ["build", "documents", "--lake", lake, *(part for each in settings for part in ("--set", each))]


def _export_lines(made: Exported, lake: str) -> list[str]:
    left_out = ", ".join(f"{reason} {count}" for reason, count in made.left_out.items())
    return [
        f"{made.articles} articles, {made.documents} corrected documents, {made.links} links, "
        f"{made.pictures} pictures: {made.path}",
        *([f"left out: {left_out}"] if left_out else []),
        f"build it: {join(['multilink', *build_arguments(made, lake)])}",
    ]
