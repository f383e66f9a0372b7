"""Which of two models editors preferred where they were compared blind, by the choices in the log."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from orchestration.decisions.log import DecisionLog
from schemas.decisions import Action, Decision, Ranking, standing
from training.retrieval.interleaving import Preference, preference

VERDICTS = {
    "open": "no difference is established yet",
    "champion": "the champion is preferred",
    "challenger": "the challenger is preferred",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
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
        """Return whose interval of articles that were won lies wholly above a half; `open`: neither's."""
        better = self.result.is_second_better
        return "open" if better is None else "challenger" if better else "champion"

    def lines(self) -> list[str]:
        """Return the result in words."""
        result = self.result
        share = "" if result.share is None else f", {result.share:.0%} of those won"
        p_value = f"sign test p = {result.p_value:.3f}"
        return [
            f"{self.champion} (champion) and {self.challenger} (challenger) on {self.dataset}",
            f"  articles: champion {result.first}, challenger {result.second}, even {result.ties}",
            f"  challenger{share}, 95% interval {result.low:.0%} to {result.high:.0%}, {p_value}",
            f"  {VERDICTS[self.outcome]}",
        ]


def comparisons(log: DecisionLog) -> list[Comparison]:
    """Return the result for each two models that were compared, by the choices in a log, the most articles first.

    Only what was decided in comparisons counts: who saw probabilities elsewhere was not blind.
    """
    decided = standing(each for each in log.decisions() if each.is_blind)
    chosen = [each for each in decided if each.action is Action.CHOOSE]
    rankings = log.rankings(each.ranking for each in chosen)
    of_models: dict[tuple[str, str, str], list[Decision]] = defaultdict(list)
    for decision in chosen:
        ranking = rankings[decision.ranking]
        of_models[ranking.models[0], ranking.models[1], ranking.dataset].append(decision)
    found = [
        Comparison(champion=first, challenger=second, dataset=dataset, result=preference(_credits(choices, rankings)))
        for (first, second, dataset), choices in sorted(of_models.items())
    ]
    return sorted(found, key=lambda each: -each.result.articles)


def _credits(choices: Iterable[Decision], rankings: dict[str, Ranking]) -> list[tuple[int, int]]:
    """Return of each article how many chosen pictures each of the two models gave."""
    counts: dict[str, Counter[bool]] = defaultdict(Counter)
    for choice in choices:
        ranking = rankings[choice.ranking]
        given = {each.image: each.model == ranking.models[1] for each in ranking.pictures}
        counts[choice.article][given[choice.image]] += 1
    return [(count[False], count[True]) for count in counts.values()]
