from dataclasses import asdict

from orchestration.commands import options


def command(lake: options.LakePath, store: options.Store = "") -> options.Summaries:
    """Show which of two models editors preferred in blind comparisons: articles won, with a 95% interval."""
    from orchestration.decisions.comparison import comparisons
    from orchestration.decisions.log import opened_log

    with opened_log(lake, store) as log:
        found = comparisons(log)
    lines = [line for each in found for line in each.lines()]
    values = {"comparisons": [asdict(each) | {"outcome": each.outcome} for each in found]}
    yield lines or ["no choice was made in a blind comparison"], values
