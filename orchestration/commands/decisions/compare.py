from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from orchestration.commands import options
from orchestration.commands.decisions.list import opened_log

if TYPE_CHECKING:
    from orchestration.decisions.comparison import Comparison

VERDICTS = {
    "open": "no difference can be told yet",
    "champion": "the champion is preferred",
    "challenger": "the challenger is preferred",
}


def command(lake: options.LakePath, store: options.Store = "") -> options.Summaries:
    """Tell which model editors preferred where two were compared blind: articles won, with a 95% interval."""
    from orchestration.decisions.comparison import comparisons

    with opened_log(lake, store) as log:
        found = comparisons(log)
    lines = [line for each in found for line in comparison_lines(each)]
    values = {"comparisons": [asdict(each) | {"outcome": each.outcome} for each in found]}
    yield lines or ["no choice was made in a blind comparison"], values


def comparison_lines(found: Comparison) -> list[str]:
    """Return the result of a comparison in words."""
    result = found.result
    share = "" if result.share is None else f", {result.share:.0%} of those won"
    return [
        f"{found.champion} (champion) and {found.challenger} (challenger) on {found.dataset}",
        f"  articles: champion {result.first}, challenger {result.second}, even {result.ties}",
        f"  challenger{share}, 95% interval {result.low:.0%} to {result.high:.0%}, sign test p = {result.p_value:.3f}",
        f"  {VERDICTS[found.outcome]}",
    ]
