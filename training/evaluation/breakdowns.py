"""Link scores by group: the documents of each language, the sentences of each role (Liu 2020).

A language is a group of documents. A role is a group of rows: a document's matrix is cut to the sentences of the role
and scored as if they were all it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from training.evaluation.bootstrap import Interval, mean_interval
from training.evaluation.links import LinkScores, score_documents

Matrix = npt.NDArray[np.floating[Any]]
Links = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """Means over a group's documents in percent, with intervals.

    Attributes:
        kind: what the groups are (`language`, `role`).
        name: of the group.
        documents: documents that could be scored.
        auc: mean.
        precision_at_1: mean.
        precision_at_5: mean.
    """

    kind: str
    name: str
    documents: int
    auc: Interval
    precision_at_1: Interval
    precision_at_5: Interval


def by_language(
    matrices: Sequence[Matrix], links: Sequence[Links | None], languages: Sequence[str]
) -> tuple[GroupScores, ...]:
    """Return the scores of each language that has a document with a score, in order of code."""
    found = []
    for language in sorted(set(languages)):
        places = [place for place, code in enumerate(languages) if code == language]
        scores = score_documents((matrices[p] for p in places), (links[p] for p in places))
        found += _group("language", language, scores)
    return tuple(found)


def by_role(
    matrices: Sequence[Matrix], links: Sequence[Links | None], roles: Sequence[Sequence[str]]
) -> tuple[GroupScores, ...]:
    """Return the scores of each role that has a document with a score, in order of name.

    Args:
        matrices: n x m of each document.
        links: of each document, or None.
        roles: n roles of each document.
    """
    found = []
    for role in sorted({name for row in roles for name in row}):
        cut = [_rows_of(role, *item) for item in zip(matrices, links, roles, strict=True)]
        scores = score_documents((matrix for matrix, _ in cut), (known for _, known in cut))
        found += _group("role", role, scores)
    return tuple(found)


def _rows_of(role: str, matrix: Matrix, links: Links | None, roles: Sequence[str]) -> tuple[Matrix, Links | None]:
    rows = np.flatnonzero([name == role for name in roles])
    if links is None or not len(links):
        return matrix[rows], links
    kept = links[np.isin(links[:, 0], rows)]
    return matrix[rows], np.stack([np.searchsorted(rows, kept[:, 0]), kept[:, 1]], axis=1)


def _group(kind: str, name: str, scores: LinkScores) -> list[GroupScores]:
    if not scores.scores:
        return []
    auc, first, fifth = (mean_interval(column) for column in scores.table().T)
    count = len(scores.scores)
    return [GroupScores(kind=kind, name=name, documents=count, auc=auc, precision_at_1=first, precision_at_5=fifth)]
