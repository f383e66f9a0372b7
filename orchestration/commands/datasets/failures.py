from typing import Annotated

import typer

from orchestration.commands import options
from pipelines.card.show import failure_rows, one_line
from schemas.errors import UsageError
from schemas.failures import Failure, Reason, Stage


def command(
    version: options.Version,
    reason: Annotated[str | None, typer.Option(help="Only those of one reason (low-score, not-found ...).")] = None,
    stage: Annotated[str | None, typer.Option(help="Only those of one stage (sources, images ...).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of rows to print at most.")] = 100,
) -> options.Summaries:
    """Print what a build rejected or could not process, a row each: stage, reason, record, message."""
    for option, value, known in (("--reason", reason, [*Reason]), ("--stage", stage, [*Stage])):
        if value is not None and value not in known:
            raise UsageError(f"{option} {value}: expected one of {', '.join(known)}")
    _, manifest, folder = version()
    rows, total = failure_rows(manifest, folder, reason=reason, stage=stage, limit=limit)
    lines = [
        f"{row['stage']:10}{row['reason']:20} {one_line(Failure(**row).where + ': ' + row['message'])}" for row in rows
    ]
    lines.append(f"{manifest.reference}: {len(rows)} of {total} failure rows; all are in {folder.uri}/failures")
    yield lines, {"dataset": manifest.reference, "total": total, "failures": rows}
