"""Which of two models editors preferred where they were compared blind, by the choices in the log."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from newsroom.decisions.log import DecisionLog, opened_log
from schemas.configs import resolve
from schemas.errors import NotFoundError
from schemas.lake import Lake
from training.metrics.preference import Preference

VERDICTS = {
    "open": "no difference is established yet",
    "champion": "the champion is preferred",
    "challenger": "the challenger is preferred",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindComparison:
    """Two models, and which of them editors preferred.

    Attributes:
        champion: URI of the model.
        challenger: URI of the other.
        dataset: NAME@VERSION that they searched.
        result: `second` is the challenger.
    """

    champion: str
    challenger: str
    dataset: str
    result: Preference

    @property
    def outcome(self) -> Literal["champion", "challenger", "open"]:
        """Return which model is preferred; `open`: no difference is established."""
        better = self.result.is_second_better
        return "open" if better is None else "challenger" if better else "champion"

    def lines(self) -> list[str]:
        """Return the result in words."""
        result, (low, high) = self.result, self.result.interval
        share = "" if result.share is None else f", {result.share:.0%} of those won"
        none = f", none fits {result.none_fits}" if result.none_fits else ""
        return [
            f"{self.champion} (champion) and {self.challenger} (challenger) on {self.dataset}",
            f"  articles: champion {result.first}, challenger {result.second}, even {result.ties}{none}",
            f"  challenger{share}, {low:.0%} to {high:.0%} at all times with 95%; evidence {result.evidence:.3g} of 20",
            f"  {VERDICTS[self.outcome]}",
        ]

    def to_json(self) -> dict[str, Any]:
        result = self.result
        numbers = {"share": result.share, "low": result.interval[0], "high": result.interval[1]}
        return resolve(self) | {
            "outcome": self.outcome,
            "result": asdict(result) | numbers | {"evidence": result.evidence},
        }


def preferred_by_editors(store: str) -> Callable[[Lake, str, str], Preference | None]:
    """Return a function of lake, champion and challenger that returns what editors preferred; None: nobody compared.

    All versions of the data set count, and comparisons from before the two models changed places; an article once.

    Args:
        store: address of the pages' database; empty: the one in the lake.
    """

    def preferred(lake: Lake, champion: str, challenger: str) -> Preference | None:
        try:
            with opened_log(lake.root.uri, store) as log:
                found = log.preferred(champion, challenger)
        except NotFoundError:
            return None
        return found if found.articles else None

    return preferred


def comparisons(log: DecisionLog) -> list[BlindComparison]:
    """Return the result for each two models that were compared, by the choices in a log, the most articles first.

    Only what was decided in comparisons counts: who saw probabilities elsewhere was not blind. Each two models have
    their own choices: a later comparison on the same articles takes nothing from an earlier one.
    """
    found = [
        BlindComparison(champion=first, challenger=second, dataset=dataset, result=result)
        for first, second, dataset, result in log.won()
    ]
    return sorted(found, key=lambda each: -each.result.articles)
