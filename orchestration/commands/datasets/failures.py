from typing import Annotated

import typer

from orchestration.commands import options
from pipelines.card.show import failure_rows, one_line
from schemas.errors import UsageError
from schemas.failures import Reason, Stage
from schemas.lake import Lake
from schemas.manifest import read_manifest


def command(
    reference: options.Reference,
    lake: options.LakePath,
    reason: Annotated[str | None, typer.Option(help="Only those of one reason (low-score, not-found ...).")] = None,
    stage: Annotated[str | None, typer.Option(help="Only those of one stage (sources, images ...).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows to print at most.")] = 100,
) -> options.Summaries:
    """Print what was rejected or failed in a build, a row each: stage, reason, record, what was found."""
    for option, value, known in (("--reason", reason, [*Reason]), ("--stage", stage, [*Stage])):
        if value is not None and value not in known:
            raise UsageError(f"{option} {value}: expected one of {', '.join(known)}")
    manifest, folder = read_manifest(Lake.at(lake), reference)
    rows, total = failure_rows(manifest, folder, reason=reason, stage=stage, limit=limit)
    lines = [
        f"{row['stage']:10}{row['reason']:20} {one_line(row['record_id'] + ': ' + row['message'])}" for row in rows
    ]
    name = f"{manifest.dataset}@{manifest.version}"
    lines.append(f"{name}: {len(rows)} of {total} failure rows; all are in {folder.uri}/failures")
    yield lines, {"dataset": name, "total": total, "failures": rows}
