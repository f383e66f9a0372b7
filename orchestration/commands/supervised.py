from typing import Annotated

import typer

from orchestration.commands import options
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.overrides import override
from training.recipes import known_recipe


def command(
    lake: options.LakePath,
    dataset: options.Dataset,
    recipe: Annotated[str, typer.Option(help="Named settings, whose objective is the one compared with.")] = "tiny",
    settings: options.Settings = None,
    shares: Annotated[str, typer.Option(help="Shares of labelled documents, separated by commas.")] = "0.1,0.2,0.4,1",
    split: options.Split = "test",
    report: options.Report = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Show how many labelled documents a supervised model needs to match what is learnt without links.

    Trains in this process; nothing is registered.
    """
    make, reference = known_recipe(recipe), options.known_dataset(lake, dataset)
    config = override(make(), settings or [])
    try:
        parts = [float(share) for share in options.items(shares, "--shares")]
    except ValueError:
        raise UsageError(f"--shares {shares!r}: expected numbers in (0, 1], separated by commas") from None
    from training.evaluation.studies import supervised_curve
    from training.report.studies import curve_table, supervised_page

    points = list(supervised_curve(config, Lake.at(lake), reference, shares=parts, split=split, say=say))
    values = {"dataset": reference, "split": split, "points": points}
    lines = [f"{reference}, {split}", *curve_table(points).lines()]
    about = {"dataset": reference, "split": split}
    yield options.with_report(lines, values, report, lambda: supervised_page(points, **about))
