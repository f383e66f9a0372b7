from dataclasses import asdict
from typing import Annotated

import typer

from orchestration.commands import options


def command(
    lake: options.LakePath,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; list what would be deleted.")] = False,
) -> options.Summaries:
    """Delete the copies, features and notes that no version of a lake needs, and what unfinished builds left."""
    from pipelines.sweep import sweep_lake

    home = options.known_lake(lake)
    swept = sweep_lake(home, dry_run=is_dry_run)
    verb = "would delete" if is_dry_run else "deleted"
    line = f"{verb}: {len(swept.paths)} files, {swept.bytes / 1e6:.1f} MB"
    yield [*swept.paths, line], asdict(swept) | {"dry_run": is_dry_run}
