"""Similarity matrices made elsewhere: JSON Lines, one document a line, to an evaluation.

    {"id": "d1", "scores": [[0.9, 0.1], [0.2, 0.3]], "links": [[0, 0]]}

`scores` is n rows (sentences) of m numbers (images), `links` the true (sentence, image) pairs, from 0, or null where
they are unknown. A line that is not so stops the reading with its number: scores of half a file would be wrong.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from schemas.errors import UsageError
from training.data.ragged import Float64, Int64
from training.evaluation.evaluate import Evaluation, evaluate_matrices


@dataclass(frozen=True, slots=True)
class ScoredDocument:
    """A document of a scores file: n x m matrix, and L x 2 links or None."""

    id: str
    matrix: Float64
    links: Int64 | None


def evaluate_scores(path: Path) -> Evaluation:
    """Return the evaluation of a scores file.

    Raises:
        UsageError: a line is broken, an id comes twice, or no document can be scored.
    """
    documents = list(read_scores(path))
    return evaluate_matrices(
        [document.id for document in documents],
        [document.matrix for document in documents],
        [document.links for document in documents],
        where=str(path),
    )


def read_scores(path: Path) -> Iterator[ScoredDocument]:
    """Yield the documents of a scores file, in order; empty lines are passed over."""
    line_of: dict[str, int] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{path}, line {number}"
                document = _document(line, where)
                first = line_of.setdefault(document.id, number)
                if first != number:
                    raise UsageError(f"{where}: expected another id, found {document.id!r}, which line {first} has")
                yield document


def _document(line: bytes, where: str) -> ScoredDocument:
    try:
        row = json.loads(line)
        name, scores, links = (row[key] for key in ("id", "scores", "links"))
        matrix, pairs = np.array(scores), np.array(links)
    except (ValueError, TypeError, KeyError) as problem:  # also rows of unequal length
        reason = " ".join(str(problem).split())
        wanted = 'one JSON object with "id", "scores" (a list of rows of equal length) and "links"'
        raise UsageError(f"{where}: expected {wanted}: {reason}") from problem
    if not isinstance(name, str):
        raise UsageError(f'{where}: expected text as "id", found {name!r}')
    matrix = matrix if matrix.shape != (0,) else np.zeros((0, 0))
    if matrix.ndim != 2 or matrix.dtype.kind not in "if" or not np.isfinite(matrix).all():
        raise UsageError(f'{where}: expected "scores" as a list of rows of equal length with finite numbers alone')
    return ScoredDocument(
        name, matrix.astype(np.float64), None if links is None else _links(pairs, matrix.shape, where)
    )


def _links(pairs: Int64, shape: tuple[int, ...], where: str) -> Int64:
    if not pairs.size:
        return np.zeros((0, 2), np.int64)
    if pairs.dtype.kind != "i" or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise UsageError(f'{where}: expected null as "links", or a list of [sentence, image] pairs of whole numbers')
    outside = pairs[((pairs < 0) | (pairs >= shape)).any(axis=1)]
    if len(outside):
        raise UsageError(f"{where}: link {outside[0].tolist()} is outside {shape[0]} sentences x {shape[1]} images")
    return pairs.astype(np.int64)
