"""Two rankings merged into one list, so that people's choices from it show which is better.

Team-draft interleaving (Radlinski, Kurup and Joachims 2008, "How does clickthrough data reflect retrieval quality?",
algorithm 2): the two rankings take turns in rounds, a coin decides which is first in each, and each gives its best
picture that is not there yet. The list does not show which ranking a picture is from. An article is won by the ranking
that gave more of the pictures chosen for it; articles are independent, pictures of one article are not, so articles are
counted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from training.data.streams import stream

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Contributed:
    """A picture of an interleaved list: its row, and whether the second of the two rankings gave it."""

    row: int
    is_second: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Which of two rankings is preferred.

    Attributes:
        first: articles that the first won.
        second: articles that the second won.
        ties: articles with equally many chosen pictures of both.
        share: of the articles that were won, those of the second, 0 to 1; None: none was won.
        low: lower bound of the 95% interval of that share (Wilson 1927).
        high: upper bound.
        p_value: of the two-sided exact sign test: how likely a difference of at least this size is by chance alone.
    """

    first: int
    second: int
    ties: int
    share: float | None
    low: float
    high: float
    p_value: float

    @property
    def articles(self) -> int:
        return self.first + self.second + self.ties

    @property
    def is_second_better(self) -> bool | None:
        """Return whether the whole interval is on one side of a half, and on which; None: it is on neither."""
        return True if self.low > 0.5 else False if self.high < 0.5 else None


def team_draft(first: Sequence[int], second: Sequence[int], *, top: int, seed: str) -> list[Contributed]:
    """Return at most `top` rows of two rankings as one list.

    Args:
        first: rows, the best first, each once.
        second: the same, of the other ranking.
        top: how many are wanted; the list ends before where a ranking has nothing left to give.
        seed: the same seed and rankings give the same list; one an article.
    """
    coins = stream("interleaving", seed)
    rankings, taken = (list(first), list(second)), (list[int](), list[int]())
    found: list[Contributed] = []
    there: set[int] = set()
    while len(found) < top:
        behind = len(taken[1]) - len(taken[0])
        turn = int(coins.integers(2)) if behind == 0 else int(behind < 0)
        row = next((row for row in rankings[turn] if row not in there), None)
        if row is None:
            break
        there.add(row)
        taken[turn].append(row)
        found.append(Contributed(row, is_second=turn == 1))
    return found


def preference(credits_of_articles: Iterable[tuple[int, int]]) -> Preference:
    """Return which of two rankings is preferred.

    Args:
        credits_of_articles: of each article, how many of the chosen pictures each ranking gave, one at least in all.
    """
    differences = [second - first for first, second in credits_of_articles]
    first, second = sum(each < 0 for each in differences), sum(each > 0 for each in differences)
    ties = len(differences) - first - second
    if not first + second:
        return Preference(first=0, second=0, ties=ties, share=None, low=0.0, high=1.0, p_value=1.0)
    test = binomtest(second, first + second)
    interval = test.proportion_ci(LEVEL, method="wilson")
    return Preference(
        first=first,
        second=second,
        ties=ties,
        share=float(test.statistic),
        low=float(interval.low),
        high=float(interval.high),
        p_value=float(test.pvalue),
    )
