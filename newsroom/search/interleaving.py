"""Two rankings merged into one list, so that people's choices from it show which is better.

Team-draft interleaving (Radlinski, Kurup and Joachims 2008, "How does clickthrough data reflect retrieval quality?",
algorithm 2): the two rankings take turns in rounds, a coin decides which is first in each, and each gives its best
picture that is not there yet. The list does not show which ranking a picture is from. An article is won by the ranking
that gave more of the pictures chosen for it; articles are independent, pictures of one article are not, so articles are
counted (`training.metrics.preference`). A coin decides who is first, so that a liking for the first place helps both
alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from training.data.streams import stream


@dataclass(frozen=True, slots=True)
class Contributed:
    """A picture of an interleaved list: its row, and whether the second of the two rankings gave it."""

    row: int
    is_second: bool


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
