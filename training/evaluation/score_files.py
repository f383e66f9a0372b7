"""Similarity matrices made elsewhere: JSON Lines, one document a line, to an evaluation.

    {"id": "d1", "scores": [[0.9, 0.1], [0.2, 0.3]], "links": [[0, 0]]}

`scores` is n rows (sentences) of m numbers (images), `links` the true (sentence, image) pairs, from 0, or null where
they are unknown. A line that is not so stops the reading with its number: scores of half a file would be wrong.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from schemas.errors import UsageError
from training.data.ragged import Float64, Int64, require_finite
from training.evaluation.evaluate import Evaluation, evaluate_matrices


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredDocument:
    """A document of a scores file."""

    id: str
    scores: list[list[float]]
    links: list[tuple[int, int]] | None

    @property
    def matrix(self) -> Float64:
        """Return the n x m similarities.

        Raises:
            ValueError: the rows are not of equal length, or a number is not finite.
        """
        matrix = np.array(self.scores, np.float64).reshape(len(self.scores), max(map(len, self.scores), default=0))
        require_finite(matrix, "scores")
        return matrix

    def pairs(self, shape: tuple[int, ...]) -> Int64 | None:
        """Return the L x 2 links; None: they are unknown.

        Raises:
            ValueError: one is outside the sentences and images.
        """
        if self.links is None:
            return None
        pairs = np.array(self.links, np.int64).reshape(-1, 2)
        outside = pairs[((pairs < 0) | (pairs >= shape)).any(axis=1)]
        if len(outside):
            raise ValueError(f"link {outside[0].tolist()} is outside {shape[0]} sentences x {shape[1]} images")
        return pairs


def evaluate_scores(path: Path) -> Evaluation:
    """Return the evaluation of a scores file.

    Raises:
        UsageError: a line is broken, an id comes twice, or no document can be scored.
    """
    line_of: dict[str, int] = {}
    matrices, links = list[Float64](), list[Int64 | None]()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                document = msgspec.json.decode(line, type=ScoredDocument)
                matrices.append(document.matrix)
                links.append(document.pairs(matrices[-1].shape))
                if (first := line_of.setdefault(document.id, number)) != number:
                    raise ValueError(f"the id {document.id!r} of line {first} again")
            except (ValueError, UsageError) as problem:
                wanted = 'an object of its own "id", "scores" (rows of equal length) and "links" (pairs or null)'
                raise UsageError(f"{path}, line {number}: expected {wanted}: {problem}") from problem
    return evaluate_matrices(list(line_of), matrices, links, where=str(path))
