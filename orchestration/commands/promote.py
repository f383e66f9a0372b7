from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from orchestration.steps import promote
from schemas.errors import GateError

if TYPE_CHECKING:
    from training.mlflow.promotion import Promotion


def promote_command(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as challenger.")],
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Settings of the gate, as TOML; the guide's page on promotion describes them.",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="NAME or NAME@VERSION to score on; by default the one that the model was trained on."),
    ] = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, but change and record nothing.")] = False,
    lake: Annotated[
        str | None,
        typer.Option("--lake", help="Lake of the data set; by default the one that the model was trained from."),
    ] = None,
    store: options.Store = "",
    workers: options.ShardWorkers = 1,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Make a version the champion if the policy allows it; exit status 1 if not.

    Without a policy, it must beat a random model, and be shown to be at most one point worse than the champion and than
    the best champion ever, on at least 20 validation documents of the data set's latest version.
    """
    promotion = promote(
        say,
        model=model,
        version=version,
        policy=str(policy or ""),
        dataset=dataset,
        is_dry_run=is_dry_run,
        lake=lake or "",
        store=store,
        workers=workers,
        tracking_uri=tracking,
    )
    yield _lines(promotion), promotion.to_json()
    if not promotion.decision.is_promoted:
        unmet = ", ".join(check.name for check in promotion.decision.checks if not check.is_passed)
        raise GateError(f"{promotion.candidate.uri} was not promoted; not met: {unmet}")


def _lines(promotion: "Promotion") -> list[str]:
    candidate, decision = promotion.candidate, promotion.decision
    verb = "would be" if promotion.is_dry_run else "is"
    verdict = f"{candidate.uri} {verb} {'' if decision.is_promoted else 'not '}the champion"
    if not decision.is_promoted and promotion.champion == candidate.version:
        verdict = f"{candidate.uri} stays the champion by its earlier statement, which is not renewed"
    marked = (f"  {'met    ' if check.is_passed else 'NOT MET'}  {check.reason}" for check in decision.checks)
    unsigned = () if promotion.is_dry_run or not decision.is_promoted else options.signature_lines()
    differences = (f"  {each}" for each in decision.differences)
    approve = f"next: multilink approve --model {candidate.name} --version {candidate.version} --by YOUR_NAME"
    waits = [approve] if decision.is_waiting else []
    return [verdict, *marked, *differences, *waits, *unsigned]
