from typing import Annotated

import typer

from orchestration.commands import options


def command(
    lake: options.LakePath,
    named: options.Named = None,
    listed: options.TakedownList = "",
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

    A version that holds them is replaced by one without them; what this host keeps of it for training goes, too.
    Models are not changed; those that were trained on them are listed, and from then on tainted: multilink promotions
    shows it, and a policy says how long they may be used.
    Put the same entries on the takedown list of later builds, or these fetch them again.
    """
    from orchestration.workflows.takedowns import read_entries, remove_held

    home, entries = options.known_lake(lake), read_entries(named, listed)
    removed = remove_held(home, entries, is_dry_run=not is_sure, with_models=with_models, tracking=tracking, say=say)
    yield removed.lines(), removed
