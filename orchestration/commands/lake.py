"""Look after a lake."""

from dataclasses import asdict
from typing import Annotated

import typer

from orchestration.commands import options


def sweep_command(
    lake: options.LakePath,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; list what would be deleted.")] = False,
) -> options.Summaries:
    """Delete copies, features and notes that no version of a lake needs, and files of unfinished builds."""
    from pipelines.sweep import sweep_lake

    home = options.known_lake(lake)
    swept = sweep_lake(home, dry_run=is_dry_run)
    verb = "would delete" if is_dry_run else "deleted"
    line = f"{verb}: {len(swept.paths)} files, {swept.bytes / 1e6:.1f} MB"
    yield [*swept.paths, line], asdict(swept) | {"dry_run": is_dry_run}


def takedown_command(
    lake: options.LakePath,
    named: options.Named = None,
    listed: options.TakedownList = "",
    tracking: options.Tracking = None,
) -> options.Summaries:
    """List every version, index, folder of links and model with a document, a page or an image."""
    from orchestration.workflows.takedowns import find_held, read_entries

    home = options.known_lake(lake)
    held = find_held(home, read_entries(named, listed), tracking)
    yield held.lines(), held


def forget_command(
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

    Each of their versions is replaced by one without them; this host's cache for training is cleared, too.
    Models are not changed; those trained on them are listed and tainted from then on: multilink promotions shows this,
    and a policy limits how long they may be used.
    Add the entries to the takedown list of later builds, which would fetch them again otherwise.
    """
    from orchestration.workflows.takedowns import read_entries, remove_held

    home, entries = options.known_lake(lake), read_entries(named, listed)
    removed = remove_held(home, entries, is_dry_run=not is_sure, with_models=with_models, tracking=tracking, say=say)
    yield removed.lines(), removed
