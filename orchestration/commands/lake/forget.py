from typing import Annotated, Any

import typer

from orchestration.commands import options
from orchestration.commands.lake.takedown import (
    ListPath,
    Named,
    holding_lines,
    holding_rows,
    taint_models,
    takedowns,
)


def command(
    lake: options.LakePath,
    named: Named = None,
    listed: ListPath = "",
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Remove it permanently; without this option, list what would be removed.")
    ] = False,
    with_models: Annotated[
        bool,
        typer.Option("--models", help="Remove the links and indexes of models that were trained on it, too."),
    ] = False,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Remove documents, pages or images from a lake: captures, copies, features, indexes, links, rows of versions.

    A version that holds them is replaced by one without them. Models are not changed; those that were trained on them
    are listed, and from then on tainted: multilink promotions shows it, and a policy says how long they may be used.
    Put the same entries on the takedown list of later builds, or these fetch them again.
    """
    from pipelines.forgetting.forget import forget
    from pipelines.forgetting.models import made_by_models, remove_made_by_models

    home = options.known_lake(lake)
    rows: list[dict[str, Any]] = []

    def let_be_known(found: Any) -> None:
        rows.extend(holding_rows(found.holdings, tracking))
        taint_models(home, rows, tracking)

    done = forget(home, takedowns(named, listed), dry_run=not is_sure, before=let_be_known, say=say)
    rows = rows if is_sure else holding_rows(done.found.holdings, tracking)
    models = {"-".join(uri.split("/")[1:]) for row in rows for uri in row["models"]} if with_models else set()
    made = remove_made_by_models(home, models) if is_sure else list(made_by_models(home, models))
    values = {
        "dry_run": not is_sure,
        "versions": rows,
        "images": sorted(done.found.images),
        "shared_images": sorted(done.found.shared),
        "captures": done.captures,
        "files": list(done.files),
        "packs": list(done.packs),
        "indexes": list(done.indexes),
        "replaced": dict(done.replaced),
        "made_by_models": made,
    }
    verb = "were removed" if is_sure else "would be removed"
    lines = [
        *holding_lines(rows, done.found.shared),
        *(f"raw/{each.source}: {each.records} captures and {each.rows} notes {verb}" for each in done.captures),
        *(f"captured file {url}: {verb}" for url in done.files),
        *(f"{path}: rows {verb}" for path in done.packs),
        *(f"{path}: the index, which has a row of it, {verb}" for path in done.indexes),
        *(f"{path}: what a tainted model made {verb}" for path in made),
        *(f"{old} was replaced by {new or 'nothing: no document was left'}" for old, new in done.replaced if is_sure),
        "all of it is removed" if is_sure else "nothing was changed; --yes removes it",
    ]
    yield lines, values
