"""Similarity matrices made elsewhere: JSON Lines, one document a line, to an evaluation.

    {"id": "d1", "scores": [[0.9, 0.1], [0.2, 0.3]], "links": [[0, 0]]}

`scores` is n rows (sentences) of m numbers (images), `links` the true (sentence, image) pairs, from 0, or null where
they are unknown. A line that is not so stops the reading with its number: scores of half a file would be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    seen: dict[str, int] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            document = _document(line, where)
            if document.id in seen:
                raise UsageError(f"{where}: id {document.id!r} is line {seen[document.id]}'s already")
            seen[document.id] = number
            yield document


def _document(line: bytes, where: str) -> ScoredDocument:
    try:
        row = json.loads(line)
    except ValueError as problem:  # bad JSON or bad UTF-8
        raise UsageError(f"{where}: expected one JSON object, found {problem}") from problem
    if not isinstance(row, dict) or not {"id", "scores", "links"} <= row.keys():
        raise UsageError(f'{where}: expected an object with "id", "scores" and "links"')
    if not isinstance(row["id"], str):
        raise UsageError(f'{where}: "id" is {row["id"]!r}, expected text')
    matrix = _matrix(row["scores"], where)
    return ScoredDocument(row["id"], matrix, _links(row["links"], matrix.shape, where))


def _matrix(value: Any, where: str) -> Float64:
    if not _is_rows(value) or len({len(row) for row in value}) > 1:
        raise UsageError(f'{where}: "scores" must be a list of rows of equal length, one a sentence')
    if not all(_is_number(number) for row in value for number in row):
        raise UsageError(f'{where}: "scores" must hold finite numbers alone')
    return np.array(value, dtype=np.float64).reshape(len(value), len(value[0]) if value else 0)


def _links(value: Any, shape: tuple[int, ...], where: str) -> Int64 | None:
    if value is None:
        return None
    if not _is_rows(value) or not all(len(pair) == 2 and all(type(i) is int for i in pair) for pair in value):
        raise UsageError(f'{where}: "links" must be null or a list of [sentence, image] pairs of whole numbers')
    for sentence, image in value:
        if not (0 <= sentence < shape[0] and 0 <= image < shape[1]):
            found = f"[{sentence}, {image}]"
            raise UsageError(f"{where}: link {found} is outside {shape[0]} sentences x {shape[1]} images")
    return np.array(value, dtype=np.int64).reshape(-1, 2)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, list) for row in value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= np.finfo(np.float64).max
