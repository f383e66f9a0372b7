from dataclasses import asdict
from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.commands.lake.takedown import ListPath, Named, holding_lines, holding_rows, takedowns
from schemas.console import Console
from schemas.lake import Lake


def command(
    lake: options.LakePath,
    named: Named = None,
    listed: ListPath = "",
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Remove it, for good; otherwise only say what would go.")
    ] = False,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Remove what is named from a lake: captures, copies, features, indexes, links, and rows of versions.

    A version that held it is replaced by one without it. Models are not touched; those that were trained on it are
    named. Put the same entries on the takedown list of later builds, or they bring it back.
    """
    from pipelines.forgetting.forget import forget

    home = Lake.at(lake)
    home.check_exists()
    done = forget(home, takedowns(named, listed), dry_run=not is_sure, say=Console().say)
    rows = holding_rows(done.found.holdings, tracking)
    values = {
        "dry_run": not is_sure,
        "versions": rows,
        "images": sorted(done.found.images),
        "shared_images": sorted(done.found.shared),
        "captures": [asdict(each) for each in done.captures],
        "files": list(done.files),
        "packs": list(done.packs),
        "replaced": dict(done.replaced),
    }
    went = "went" if is_sure else "would go"
    lines = [
        *holding_lines(rows, done.found.shared),
        *(f"raw/{each.source}: {each.records} captures and {each.rows} notes {went}" for each in done.captures),
        *(f"captured file {url} {went}" for url in done.files),
        *(f"{path}: rows {went}" for path in done.packs),
        *(f"{old} was replaced by {new or 'nothing: no document was left'}" for old, new in done.replaced if is_sure),
        "it is gone" if is_sure else "nothing was changed; --yes removes it",
    ]
    yield lines, values
