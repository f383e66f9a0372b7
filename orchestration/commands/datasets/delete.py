from dataclasses import asdict
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.errors import UsageError


def command(
    reference: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="Version to delete.")],
    lake: options.LakePath,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Delete it permanently; without this option, list what would be deleted.")
    ] = False,
) -> options.Summaries:
    """Delete a version with its links and indexes; the latest, and what a champion needs, are refused.

    Copies and features that no other version has are freed by `multilink lake sweep`.
    """
    if "@" not in reference:
        raise UsageError(f"{reference}: expected NAME@VERSION")
    found = options.known_dataset(lake, reference)
    from pipelines.sweep import delete_version
    from training.promotions.history import needed_by_champions

    home = options.known_lake(lake)
    gone = delete_version(home, found, needed_by=needed_by_champions(home), dry_run=not is_sure)
    verb = "deleted" if is_sure else "nothing was changed; --yes deletes"
    lines = [*gone.paths, f"{verb}: {found}, {len(gone.paths)} files, {gone.bytes / 1e6:.1f} MB"]
    yield lines, asdict(gone) | {"dataset": found, "dry_run": not is_sure}
