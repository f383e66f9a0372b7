"""The scores a document has; how well a matrix finds its links: AUROC and precision at C (Hessel 2019, section 2).

Scores are of links within a document, or of how its texts find their images among those of all documents
(`retrieval.py`). Both kinds are percentages, and a mean over documents has an interval over them. Documents of
one text and one image have no scores of links: their only pair is linked.

Ties never depend on sort order: AUROC counts a tie half, precision takes its expected value over all orders of the tied
pairs. A document whose links are unknown, empty or complete cannot be scored: it is left out, and counted.

Groups of an evaluation's texts are by language, by the length of their document (links alone), by role, by relation of
their links, by source of a fused model. A group's link scores are those of its rows: a document's matrix is cut to the
sentences of the group and scored as if they were all it had. Its retrieval is over a pool of its own: the group's texts
look for their images among the group's, and back (Liu 2020, tables 1, 3 and 4, by source and language; Alikhani 2022,
table 7, by relation).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from training.data.ragged import Bool, Float64, Floats, Int64, require_finite
from training.metrics.intervals import Score, mean_interval

T = TypeVar("T")
Links = npt.NDArray[np.integer[Any]] | Sequence[tuple[int, int]]
LINKS_UNKNOWN, NO_LINK, FULLY_LINKED = "links unknown", "no link", "every pair linked"
LANGUAGE, LENGTH, ROLE, SOURCE, RELATION = "language", "sentences", "role", "source", "relation"
LENGTHS = {"1-4": 0, "5-9": 5, "10-19": 10, "20+": 20}  # group of documents -> their fewest sentences


class ScoreKind(StrEnum):
    """Of links within a document; or of retrieval among all documents, where a document is a text and an image."""

    LINKS = "links"
    PAIRS = "pairs"

    @property
    def metrics(self) -> Mapping[str, str]:
        """Return metric -> title, in the order of the papers' tables."""
        return _METRICS[self]

    @property
    def leading(self) -> str:
        """Return the metric that distinguishes documents best."""
        return "auc" if self is ScoreKind.LINKS else "reciprocal_rank"


_METRICS: Mapping[ScoreKind, Mapping[str, str]] = {
    ScoreKind.LINKS: {"auc": "AUC", "precision_at_1": "p@1", "precision_at_5": "p@5"},
    ScoreKind.PAIRS: {
        "recall_at_1": "R@1",
        "recall_at_5": "R@5",
        "recall_at_10": "R@10",
        "reciprocal_rank": "reciprocal rank",
    },
}


class LinkScore(NamedTuple):
    """Link scores of one document, 0 to 100."""

    auc: float
    precision_at_1: float
    precision_at_5: float


class PairScore(NamedTuple):
    """Retrieval scores of one document, 0 to 100: texts with an image among the first 1, 5, 10, and 100 / rank."""

    recall_at_1: float
    recall_at_5: float
    recall_at_10: float
    reciprocal_rank: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DocumentScores:
    """Scores of the documents that have any, as arrays: a split may have a hundred million.

    Attributes:
        kind: of the scores.
        documents: D positions (in what was given) of the scored documents.
        table: D x k: a row a scored document, a column a metric.
        left_out: documents that could not be scored, by reason.
        candidates: how many images a text chooses from; 0 for scores of links.
        chance: what a random order of the candidates is expected to score, on the same documents.
    """

    kind: ScoreKind
    documents: Int64
    table: Float64
    left_out: Mapping[str, int] = field(default_factory=dict)
    candidates: int = 0
    chance: PairScore | None = None

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[LinkScore | PairScore]:
        """Yield the scores of each document."""
        row_of = LinkScore if self.kind is ScoreKind.LINKS else PairScore
        return (row_of(*row.tolist()) for row in self.table)

    def means(self) -> dict[str, Score]:
        """Return metric -> mean over documents; empty where no document has scores."""
        return mean_scores(self.table, self.kind) if len(self) else {}


def mean_scores(table: Float64 | Sequence[Sequence[float]], kind: ScoreKind) -> dict[str, Score]:
    """Return metric -> mean, with its 95% interval, of D x k scores of documents.

    >>> mean_scores([[60.0, 50.0, 40.0], [80.0, 50.0, 20.0]], ScoreKind.LINKS)["auc"].value
    70.0
    """
    columns = np.asarray(table, np.float64).T
    return {
        metric: mean_interval(column).score(metric, n=len(column))
        for metric, column in zip(kind.metrics, columns, strict=True)
    }


def score(matrix: Floats, links: Links) -> LinkScore:
    """Return the scores of an n x m matrix against its (sentence, image) links.

    Raises:
        ValueError: there is no link, or every pair is one.
        UsageError: a similarity is not finite.

    >>> score(np.array([[0.9, 0.1], [0.2, 0.3]]), np.array([[0, 0]]))
    LinkScore(auc=100.0, precision_at_1=100.0, precision_at_5=25.0)
    """
    require_finite(matrix, "similarities of a document")
    linked = link_mask(matrix.shape, links).ravel()
    if linked.all() or not linked.any():
        raise ValueError(f"expected some linked and some unlinked pairs, found {linked.sum()} of {linked.size} linked")
    values = np.asarray(matrix, dtype=np.float64).ravel()
    precisions = (100 * expected_precision(values, linked, at=at) for at in (1, 5))
    return LinkScore(100 * roc_auc(values, linked), *precisions)


def score_documents(matrices: Iterable[Floats], links: Iterable[Links | None]) -> DocumentScores:
    """Return the scores of the documents that can be scored, and count the others by reason.

    >>> found = score_documents([np.array([[0.9, 0.1]]), np.array([[0.5]])], [np.array([[0, 0]]), np.array([[0, 0]])])
    >>> found.documents.tolist(), dict(found.left_out)
    ([0], {'every pair linked': 1})
    """
    scored: dict[int, LinkScore] = {}
    left_out = Counter({LINKS_UNKNOWN: 0, NO_LINK: 0, FULLY_LINKED: 0})
    for position, (matrix, known) in enumerate(zip(matrices, links, strict=True)):
        if known is None:
            left_out[LINKS_UNKNOWN] += 1
        elif len(known) == 0:
            left_out[NO_LINK] += 1
        elif link_mask(matrix.shape, known).all():
            left_out[FULLY_LINKED] += 1
        else:
            scored[position] = score(matrix, known)
    table = np.array([*scored.values()], np.float64).reshape(-1, len(LinkScore._fields))
    return DocumentScores(
        kind=ScoreKind.LINKS, documents=np.array([*scored], np.int64), table=table, left_out=+left_out
    )


def joined_scores(parts: Sequence[DocumentScores], counts: Iterable[int]) -> DocumentScores:
    """Return link scores of parts of a split as those of the split; `counts`: the documents of each part.

    >>> one = score_documents([np.array([[0.9, 0.1]])], [np.array([[0, 0]])])
    >>> joined_scores([one, one], [1, 1]).documents.tolist()
    [0, 1]
    """
    placed = zip(accumulate(counts, initial=0), parts, strict=False)
    left_out: Counter[str] = Counter()
    for part in parts:
        left_out.update(part.left_out)
    return DocumentScores(
        kind=ScoreKind.LINKS,
        documents=np.concatenate([start + part.documents for start, part in placed]),
        table=np.concatenate([part.table for part in parts]),
        left_out=left_out,
    )


def mean_auc(
    options: Iterable[T], matrices_of: Callable[[T], Iterable[Floats]], links: Sequence[Links | None]
) -> dict[T, float]:
    """Return the mean AUROC, in percent, of the similarities that each option gives; none where nothing can be scored.

    Args:
        options: such as the values of a setting.
        matrices_of: an option -> n x m similarities of each document.
        links: of each document, or None where unknown.

    >>> mean_auc([1, -1], lambda sign: [sign * np.array([[0.9, 0.1]])], [np.array([[0, 0]])])
    {1: 100.0, -1: 0.0}
    """
    scores = {option: score_documents(matrices_of(option), links) for option in options}
    return {option: float(each.table[:, 0].mean()) for option, each in scores.items() if each}


def link_mask(shape: tuple[int, ...], links: Links) -> Bool:
    """Return n x m: whether sentence and image are linked.

    >>> link_mask((2, 2), np.array([[0, 1]])).tolist()
    [[False, True], [False, False]]
    """
    mask = np.zeros(shape, dtype=bool)
    pairs = np.asarray(links, dtype=np.int64).reshape(-1, 2)
    mask[pairs[:, 0], pairs[:, 1]] = True
    return mask


def roc_auc(values: Float64, linked: Bool) -> float:
    """Return the probability that a linked pair has a larger value than an unlinked one, a tie counting half.

    >>> roc_auc(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    0.875
    """
    positives = int(linked.sum())
    negatives = linked.size - positives
    _, rows, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(ties) - (ties - 1) / 2  # of each different value, from 1; the mean rank of those that tie
    rank_sum = float(ranks[rows][linked].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def expected_precision(values: Float64, linked: Bool, *, at: int) -> float:
    """Return the expected share of links among the `at` largest values, over all orders of equal values.

    Values above the last one that counts are in for sure; those equal to it share what is left. With fewer than `at`
    pairs, the share is of those there are.

    >>> expected_precision(np.array([0.9, 0.9, 0.1]), np.array([True, False, False]), at=1)
    0.5
    """
    count = min(at, values.size)
    last = np.partition(values, values.size - count)[values.size - count]
    above, tied = values > last, values == last
    return float(linked[above].sum() + ((count - above.sum()) / tied.sum()) * linked[tied].sum()) / count


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some of the texts of all documents.

    Attributes:
        kind: what the groups are: `language`, `sentences`, `role`, `source`, `relation`.
        name: of the group.
        rows: which of a document's n sentences are in the group, for each document; None: the document is not.
        links: (sentence, image) links of these sentences, counted as in the document.
        texts: vectors of the sentences where they are read otherwise than in the document, n x d for each document.
    """

    kind: str
    name: str
    rows: Sequence[Int64 | None]
    links: Sequence[Int64 | None]
    texts: Sequence[Floats] | None = None

    @property
    def title(self) -> str:
        """Return what its rows in an evaluation have as `group`."""
        return f"{self.kind}={self.name}"


def document_groups(
    kind: str, names: Sequence[str], links: Sequence[Int64 | None], counts: Sequence[int]
) -> Iterator[Group]:
    """Yield the documents of each name, where there are several; `counts` are the documents' sentences.

    >>> links = [np.array([[0, 0]])] * 2
    >>> [group.title for group in document_groups("language", ["de", "en"], links, [1, 1])]
    ['language=de', 'language=en']
    """
    for name in sorted(_several(names), key=lambda each: LENGTHS.get(each, 0)):
        is_own = [own == name for own in names]
        yield Group(
            kind=kind,
            name=name,
            rows=[np.arange(n) if own else None for n, own in zip(counts, is_own, strict=True)],
            links=[known if own else None for known, own in zip(links, is_own, strict=True)],
        )


def length_names(counts: Sequence[int]) -> list[str]:
    """Return the group of each document by its sentences.

    >>> length_names([1, 7, 30])
    ['1-4', '5-9', '20+']
    """
    names, fewest = [*LENGTHS], [*LENGTHS.values()]
    return [names[bisect_right(fewest, count) - 1] for count in counts]


def role_groups(roles: Sequence[Sequence[str]], links: Sequence[Int64 | None]) -> Iterator[Group]:
    """Yield the sentences of each role, where there are several; `roles` has a role for each sentence.

    >>> [group.title for group in role_groups([["lead", "body"]], [np.array([[0, 0]])])]
    ['role=body', 'role=lead']
    """
    for role in _several([name for row in roles for name in row]):
        rows = [np.flatnonzero([name == role for name in row]) for row in roles]
        kept = [
            None if known is None else known[np.isin(known[:, 0], own)] for known, own in zip(links, rows, strict=True)
        ]
        yield Group(kind=ROLE, name=role, rows=rows, links=kept)


def link_scores(group: Group, matrices: Sequence[Floats]) -> Iterator[Score]:
    """Yield the mean link scores of a group; none where no document of it can be scored.

    >>> (group, _) = role_groups([["body", "lead", "lead"]], [np.array([[0, 1]])])
    >>> [score.value for score in link_scores(group, [np.array([[0.1, 0.9], [0.5, 0.2], [0.0, 0.3]])])]
    [100.0, 100.0, 50.0]
    """
    cut, renumbered = [], []
    for matrix, rows, known in zip(matrices, group.rows, group.links, strict=True):
        if rows is not None and known is not None:
            cut.append(matrix[rows])
            renumbered.append(np.stack([np.searchsorted(rows, known[:, 0]), known[:, 1]], axis=1))
    yield from score_documents(cut, renumbered).means().values()


def _several(names: Sequence[str]) -> list[str]:
    different = sorted(set(names))
    return different if len(different) > 1 else []
