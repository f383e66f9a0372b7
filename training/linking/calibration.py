"""From the similarity of a predicted link to the probability that it is true, and to a threshold for a precision.

A `Calibration` is what was learnt from validation links, small enough to be a JSON file beside a model's report. It is
about predicted links, the edges that `links.py` draws, not about all pairs of a document. Fitting one is
`training.evaluation.calibration`'s.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.errors import IntegrityError, UsageError

FILE_NAME = "calibration.json"
CALIBRATION_FORMAT = 2  # 1: precisions of thresholds were shares, not bounds
Float = npt.NDArray[np.floating[Any]]
Float64 = npt.NDArray[np.float64]


class Method(StrEnum):
    """How similarities become probabilities: a sigmoid (Platt 1999), or the best non-decreasing curve."""

    PLATT = "platt"
    ISOTONIC = "isotonic"


@dataclass(frozen=True, slots=True)
class PrecisionPoint:
    """What is known of links with at least this similarity, from the validation links that have it.

    Attributes:
        similarity: the threshold.
        precision: share of such links, 0 to 1, that is true at least, with 95% confidence for all points together.
        links: validation links it was measured on.
    """

    similarity: float
    precision: float
    links: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What validation links say about similarities.

    Attributes:
        dataset: NAME@VERSION it was fitted on.
        split: split of it.
        documents: documents with known links.
        links: predicted links in them.
        true_links: those that are true.
        method: how probabilities are made.
        slope: of the sigmoid in the similarity; 0 for another method.
        intercept: of the sigmoid.
        similarities: rising knots of the curve; empty for another method.
        probabilities: the curve there; linear in between, constant beyond.
        points: thresholds that keep fewer and fewer links at a higher and higher precision.
    """

    dataset: str
    split: str
    documents: int
    links: int
    true_links: int
    method: Method
    slope: float = 0.0
    intercept: float = 0.0
    similarities: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = ()
    points: tuple[PrecisionPoint, ...] = ()

    def probability(self, similarities: Float) -> Float64:
        """Return the probability, 0 to 1, that predicted links of these similarities are true."""
        values = np.asarray(similarities, dtype=np.float64)
        if self.method is Method.ISOTONIC:
            return np.interp(values, self.similarities, self.probabilities)
        return np.asarray(0.5 * (1 + np.tanh((self.slope * values + self.intercept) / 2)), dtype=np.float64)

    def threshold(self, precision: float) -> float:
        """Return the smallest similarity from which on links have at least this precision, 0 to 1, with 95% confidence.

        Raises:
            UsageError: no threshold reaches it, or it is no precision.
        """
        if not 0 < precision <= 1:
            raise UsageError(f"--precision {precision:g}: expected a share above 0 and at most 1, such as 0.9")
        for point in self.points:
            if point.precision >= precision:
                return point.similarity
        best = max((point.precision for point in self.points), default=0.0)
        raise UsageError(
            f"--precision {precision:g}: no similarity is known with 95% confidence to reach it, by {self.links} links "
            f"of {self.dataset}, split {self.split}; the highest is {best:.3f}"
        )

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps({"format": CALIBRATION_FORMAT, **asdict(self)}, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str) -> Calibration:
        """Return the calibration of a file's text.

        Raises:
            IntegrityError: it is none, or of another format.
        """
        try:
            values = json.loads(text)
            if values.pop("format") != CALIBRATION_FORMAT:
                raise IntegrityError(
                    f"{where}: expected calibration format {CALIBRATION_FORMAT}; evaluate the model anew"
                )
            points = tuple(PrecisionPoint(**point) for point in values.pop("points"))
            knots = [tuple(values.pop(name)) for name in ("similarities", "probabilities")]
            method = Method(values.pop("method"))
            return cls(method=method, points=points, similarities=knots[0], probabilities=knots[1], **values)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise IntegrityError(f"{where}: expected a calibration, found {problem!r}") from problem


def read_calibration(path: Path) -> Calibration:
    """Return the calibration of a file.

    Raises:
        UsageError: there is no such file.
        IntegrityError: it holds no calibration.
    """
    if not path.is_file():
        raise UsageError(f"--calibration {path}: no such file")
    return Calibration.from_json(path.read_text(encoding="utf-8"), where=str(path))
