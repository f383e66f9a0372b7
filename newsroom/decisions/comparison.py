"""Which of two models editors preferred where they were compared blind, by the choices in the log."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from newsroom.decisions.records import Action
from newsroom.decisions.store import Store, open_store
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


def preferred_by_editors(store: str, lake: Lake, champion: str, challenger: str) -> Preference | None:
    """Return what editors preferred; None: nobody compared.

    All versions of the data set count, and comparisons from before the two models changed places; an article once.

    Args:
        store: address of the pages' database; empty: the one in the lake.
        lake: of the pages.
        champion: URI of the model.
        challenger: URI of the other.
    """
    try:
        with open_store(lake.root.uri, store) as log:
            rows = [row for row in log.blind() if {row.champion, row.challenger} == {champion, challenger}]
    except NotFoundError:
        return None
    found = _preference(rows, champion)
    return found if found.articles else None


def comparisons(log: Store) -> list[BlindComparison]:
    """Return the result for each two models that were compared, by the choices in a log, the most articles first.

    Only what was decided in comparisons counts: who saw probabilities elsewhere was not blind. Each two models have
    their own choices: a later comparison on the same articles takes nothing from an earlier one.
    """
    of: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for row in log.blind():
        of[row.champion, row.challenger, row.dataset].append(row)
    found = [
        BlindComparison(champion=each[0], challenger=each[1], dataset=each[2], result=_preference(rows, each[0]))
        for each, rows in of.items()
    ]
    return sorted((each for each in found if each.result.articles), key=lambda each: -each.result.articles)


def _preference(rows: Iterable[Any], champion: str) -> Preference:
    """Return the articles that a champion and the other model won, by blind decisions on pictures of them, in order.

    The last decision on a picture counts, of each order of the two models.
    """
    standing = {(row.champion, row.article, row.image): row for row in rows}
    of: dict[str, Counter[str]] = defaultdict(Counter)
    for row in standing.values():
        lead = row.side if row.champion == champion else -row.side
        of[row.article].update({row.action: 1, "lead": lead if row.action == Action.CHOOSE else 0})
    leads = [each["lead"] for each in of.values() if each[Action.CHOOSE]]
    is_open = (each[Action.CHOOSE] or each[Action.SHORTLIST] or not each[Action.REJECT] for each in of.values())
    return Preference(
        first=sum(lead < 0 for lead in leads),
        second=sum(lead > 0 for lead in leads),
        ties=sum(lead == 0 for lead in leads),
        none_fits=sum(not each for each in is_open),
    )
