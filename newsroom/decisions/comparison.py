"""Two models compared blind: their pictures for an article as one list, and which of them editors preferred.

Which model gave which picture is in the ranking that the log keeps, and nowhere that a person sees before the result;
the list has neither similarities nor probabilities. Both indexes are of one data set version, so that a picture has the
same content hash in both.

Team-draft interleaving (Radlinski, Kurup and Joachims 2008, "How does clickthrough data reflect retrieval quality?",
algorithm 2): the two rankings take turns in rounds, a coin decides which is first in each, and each gives its best
picture that is not there yet. An article is won by the ranking that gave more of the pictures chosen for it; articles
are independent, pictures of one article are not, so articles are counted (`training.metrics.preference`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from newsroom.archive.index import Index
from newsroom.decisions.records import Action, Ranking, ShownPicture, article_digest
from newsroom.decisions.store import Store, open_store
from newsroom.search.queries import Query
from newsroom.search.search import SearchResult
from schemas.configs import resolve
from schemas.lake import Lake
from schemas.messages import NotFoundError, UsageError
from training.data.ragged import stream
from training.metrics.preference import Preference

COMPARED = 100  # pictures of each model's ranking that take part
SHOWN = 20
Item = TypeVar("Item")
VERDICTS = {
    "open": "no difference is established yet",
    "champion": "the champion is preferred",
    "challenger": "the challenger is preferred",
}


def team_draft(first: Sequence[Item], second: Sequence[Item], *, top: int, seed: str) -> dict[Item, bool]:
    """Return at most `top` items of two rankings as one list: each in order, and whether the second gave it.

    Args:
        first: items, the best first, each once.
        second: the same, of the other ranking.
        top: how many are wanted; the list ends before where a ranking has nothing left to give.
        seed: the same seed and rankings give the same list; one an article.
    """
    coins, found = stream("interleaving", seed), dict[Item, bool]()
    while len(found) < top:
        lead = 2 * sum(found.values()) - len(found)  # of the second
        is_second = bool(coins.integers(2)) if lead == 0 else lead < 0
        item = next((each for each in (second if is_second else first) if each not in found), None)
        if item is None:
            break
        found[item] = is_second
    return found


def interleaved(query: Query, indexes: Sequence[Index], found: Sequence[SearchResult], *, address: str = "") -> Ranking:
    """Return two models' results for an article as one list; the same every time.

    Args:
        query: with the article's texts.
        indexes: of the champion and of the challenger.
        found: what each found, COMPARED pictures or fewer.
        address: of the page.

    Raises:
        UsageError: the indexes are not two models' of one data set version, or there is no text.
    """
    champion, challenger = (index.manifest for index in indexes)
    if champion.dataset != challenger.dataset or champion.model == challenger.model:
        raise UsageError(
            f"a comparison: expected indexes of two models over one data set version, found {champion.model} over "
            f"{champion.dataset} and {challenger.model} over {challenger.dataset}"
        )
    seed = article_digest(query.texts)
    if not seed:
        raise UsageError("a comparison needs the text of an article")
    titles = {each.picture.image: each.picture.title for result in found for each in result.images}
    first, second = ([each.picture.image for each in result.images] for result in found)
    models = (champion.model, challenger.model)
    drafted = team_draft(first, second, top=SHOWN, seed=seed)
    return Ranking(
        texts=query.texts,
        language=query.language,
        models=models,
        dataset=champion.dataset,
        query=address,
        pictures=tuple(
            ShownPicture(image=image, score=-float(rank), model=models[is_second], title=titles[image])
            for rank, (image, is_second) in enumerate(drafted.items(), start=1)
        ),
    )


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
