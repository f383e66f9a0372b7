"""From what is seen of a predicted link to the probability that it is true, and to a threshold for a precision.

A `Calibration` is learnt from validation links, and small enough to be a JSON file beside a model's report. It is about
predicted links, the edges that linking draws, not about all pairs of a document. Every predicted link of a
document with known links, some pair of which is no link, is one observation: how sure it looks (`link_features`), and
whether it is true. A calibration is fitted to the observations of one split, and judged on those of another. It holds
for documents like those: of the same data set, with as many sentences and images (`Calibration.outside`).
How sure the result of a search is has a class of its own, `curves.ProbabilityCurve`.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from schemas.configs import restore_json
from schemas.messages import UsageError
from training.closed_form.plans import plan_of
from training.data.ragged import Bool, Float64, Floats, Int64
from training.metrics.curves import ENOUGH_FOR_ISOTONIC, PrecisionPoint, fit_isotonic, fit_sigmoid, precision_points
from training.metrics.intervals import Score, mean_interval
from training.metrics.links import link_mask
from training.similarity.similarity import predicted_pairs

FILE_NAME = "calibration.json"
RELIABILITY_BINS = 10
FEATURES = 3
FOLDS = 5  # of documents: those that the curve is fitted to had no part in their own logits
USUAL = (0.01, 0.99)  # shares of documents with fewer, and with at most as many, sentences or images
WORDS = {2 / 3: "strong", 1 / 3: "fair", 0.0: "weak"}  # least probability -> how a link looks
WANTED_PRECISIONS = (0.8, 0.9, 0.95)
REPEATS = (2, 4, 8, 16)  # of the documents, to estimate how many would prove a precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How sure predicted links are by their similarity, learnt from validation links.

    Attributes:
        dataset: NAME@VERSION it was fitted on.
        split: split of it.
        documents: documents with known links.
        links: predicted links in them.
        true_links: those that are true.
        slopes: of the `link_features` of a link in its logit.
        intercept: of the logit.
        sentences: fewest and most that its documents had, but for one of a hundred at either end.
        images: likewise.
        logits: rising knots of the curve from logit to probability; none: it is the sigmoid.
        probabilities: the curve there, 0 to 1; linear in between, constant beyond.
        points: thresholds that keep fewer and fewer links at a higher and higher precision.
        proving: precisions, each with how many documents would prove it if they were like these: 2 to 16 times these.
    """

    dataset: str
    split: str
    documents: int
    links: int
    true_links: int
    slopes: tuple[float, float, float]
    intercept: float
    sentences: tuple[int, int]
    images: tuple[int, int]
    logits: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = ()
    points: tuple[PrecisionPoint, ...] = ()
    proving: tuple[tuple[float, int], ...] = ()

    def of_links(self, matrix: Floats, rows: Int64, columns: Int64) -> Float64:
        """Return the probability, 0 to 1, that predicted links of a document with n x m similarities are true."""
        return self.of_features(link_features(matrix, rows, columns))

    def of_features(self, features_EF: Float64) -> Float64:
        """Return the probability of E links by their `link_features`."""
        logits = features_EF @ np.array(self.slopes) + self.intercept
        return np.asarray(np.interp(logits, self.logits, self.probabilities) if self.logits else expit(logits))

    def outside(self, dataset: str, shape: tuple[int, int] | None = None) -> str:
        """Return why a link of a document has no probability by this; empty: it has one.

        Args:
            dataset: NAME or NAME@VERSION that the document is of; empty: of none.
            shape: its numbers of sentences and images; None: any.
        """
        if dataset.partition("@")[0] != self.dataset.partition("@")[0]:
            return f"probabilities were fitted on {self.dataset} and hold only for its documents"
        bounds = (("sentences", self.sentences), ("images", self.images))
        for (what, (low, high)), count in zip(bounds, shape or (), strict=False):
            if not low <= count <= high:
                return f"probabilities were fitted on documents with {low} to {high} {what} and hold only for these"
        return ""

    def threshold(self, precision: float) -> float:
        """Return the smallest similarity from which on links have at least this precision, 0 to 1, with 95% confidence.

        It is that of the next level that was tested (`precision.LEVELS`).

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
            f"--precision {precision:g}: no threshold is known to reach it with 95% confidence, by {self.links} links "
            f"in {self.documents} documents of {self.dataset}, split {self.split}; the highest is {best:g}"
            f"{self.more(precision)}"
        )

    def more(self, precision: float) -> str:
        """Return how many documents with known links would prove a precision, in words; empty: it is not known."""
        known = [count for proven, count in self.proving if proven >= precision]
        return f"; about {min(known)} documents with known links would do, if they were like these" if known else ""

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of the file's text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def read_calibration(path: Path) -> Calibration:
    """Return the calibration of a file.

    Raises:
        IntegrityError: it holds none.
    """
    what = f"a calibration in {path} (`multilink evaluate` makes one)"
    return restore_json(Calibration, path.read_text(encoding="utf-8"), what=what)


@dataclass(frozen=True, slots=True)
class Observations:
    """Predicted links of documents whose links are known.

    Attributes:
        features: E x F, the similarity first (`link_features`).
        are_true: E.
        documents: E document numbers.
        shapes: D x 2, numbers of sentences and images of the documents with known links and an unlinked pair, those
            without a prediction among them.
    """

    features: Float64
    are_true: Bool
    documents: Int64
    shapes: Int64

    def __len__(self) -> int:
        return len(self.features)

    @property
    def similarities(self) -> Float64:
        return self.features[:, 0]


def observe(matrices: Sequence[Floats], links: Sequence[Int64 | None]) -> Observations:
    """Return the predicted links of the documents with known links and an unlinked pair.

    Args:
        matrices: n x m similarities of each document.
        links: its (sentence, image) links, or None where unknown.

    >>> observed = observe([np.array([[0.9, 0.8], [0.7, -0.1]])], [np.array([[0, 1]])])
    >>> observed.similarities.tolist(), observed.are_true.tolist()
    ([0.8, 0.7], [True, False])
    """
    parts: list[tuple[Float64, Bool, Int64]] = []
    shapes: list[tuple[int, ...]] = []
    for number, (matrix, known) in enumerate(zip(matrices, links, strict=True)):
        if known is None or (true := link_mask(matrix.shape, known)).all():
            continue
        shapes.append(matrix.shape)
        pairs = predicted_pairs(matrix)
        parts.append((link_features(matrix, *pairs), true[pairs], np.full(len(pairs[0]), number)))
    parts.append((np.zeros((0, FEATURES)), np.zeros(0, bool), np.zeros(0, np.int64)))
    features, are_true, documents = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Observations(
        features, are_true.astype(bool), documents.astype(np.int64), np.array(shapes, np.int64).reshape(-1, 2)
    )


def fit_calibration(observed: Observations, *, dataset: str, split: str) -> Calibration:
    """Return the calibration of some observations.

    Raises:
        ValueError: there is no observation.

    >>> observed = observe([np.array([[0.9, 0.1], [0.2, 0.3]])] * 9, [np.array([[0, 0]])] * 9)
    >>> calibration = fit_calibration(observed, dataset="diy@v1", split="val")
    >>> calibration.links, calibration.true_links
    (18, 9)
    """
    if not len(observed):
        raise ValueError("expected predicted links of documents with known links, found none")
    *slopes, intercept = fit_sigmoid(observed.features, observed.are_true)
    (fewest, most), count = np.quantile(observed.shapes, USUAL, axis=0, method="nearest").tolist(), len(observed.shapes)
    logits, probabilities = _curve(observed)
    points = precision_points(observed.similarities, observed.are_true, observed.documents, count)
    return Calibration(
        dataset=dataset,
        split=split,
        documents=count,
        links=len(observed),
        true_links=int(observed.are_true.sum()),
        slopes=(slopes[0], slopes[1], slopes[2]),
        intercept=intercept,
        sentences=(fewest[0], most[0]),
        images=(fewest[1], most[1]),
        logits=logits,
        probabilities=probabilities,
        points=points,
        proving=tuple(_proving(observed, count, points)),
    )


def _proving(observed: Observations, count: int, points: Sequence[PrecisionPoint]) -> Iterator[tuple[float, int]]:
    """Yield the precisions that several times as many documents would prove, and how many."""
    best = points[-1].precision if points else 0.0
    for times in REPEATS:
        if best >= WANTED_PRECISIONS[-1]:
            return
        copies = np.arange(times)[:, None] * (1 + observed.documents.max()) + observed.documents
        similarities, are_true = np.tile(observed.similarities, times), np.tile(observed.are_true, times)
        points = precision_points(similarities, are_true, copies.ravel(), times * count)
        if points and points[-1].precision > best:
            best = points[-1].precision
            yield best, times * count


def _curve(observed: Observations) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return knots of the isotonic curve from logits to probabilities; none where links or documents are few.

    Each document's logits are by the others' sigmoid. One false link more is as sure as the surest and a true one as
    the least sure: the curve reaches neither 0 nor 1.
    """
    folds = observed.documents % FOLDS
    if len(observed) < ENOUGH_FOR_ISOTONIC or len(np.unique(folds)) < FOLDS:
        return (), ()
    logits = np.zeros(len(observed))
    for fold in range(FOLDS):
        is_out = folds == fold
        *slopes, intercept = fit_sigmoid(observed.features[~is_out], observed.are_true[~is_out])
        logits[is_out] = observed.features[is_out] @ np.array(slopes) + intercept
    return fit_isotonic(np.append(logits, [logits.max(), logits.min()]), np.append(observed.are_true, [False, True]))


def word_of(probability: float) -> str:
    """Return how a link looks, in a word, where its probability does not hold.

    >>> [word_of(probability) for probability in (0.9, 0.5, 0.1)]
    ['strong', 'fair', 'weak']
    """
    return next(word for least, word in WORDS.items() if probability >= least)


def link_features(matrix: Floats, rows: Int64, columns: Int64) -> Float64:
    """Return E x 3 numbers that tell how sure links of a document are: similarity, soft plan, margin.

    The plan is the logarithm of how much of the sentence goes to the image (`closed_form.plans`), times what an equal
    share is. The margin is to the highest other similarity of the sentence or the image; 0 where there is none.

    Args:
        matrix: n x m similarities.
        rows: sentence of each link.
        columns: image of each.

    >>> link_features(np.array([[0.9, 0.2], [0.1, 0.4]]), np.array([0, 1]), np.array([0, 1])).round(2).tolist()
    [[0.9, 0.67, 0.7], [0.4, 0.69, 0.2]]
    """
    similarities = matrix[rows, columns].astype(np.float64)
    if not len(rows):
        return np.zeros((0, FEATURES))
    positions = np.arange(len(rows))
    by_row, by_column = matrix[rows].astype(np.float64), matrix[:, columns].T.astype(np.float64)
    by_row[positions, columns] = by_column[positions, rows] = -np.inf
    others = np.maximum(by_row.max(axis=1), by_column.max(axis=1))
    margins = np.where(np.isfinite(others), similarities - others, 0.0)
    return np.stack([similarities, plan_of(matrix)[rows, columns], margins], axis=1)


def calibration_scores(calibration: Calibration, observed: Observations) -> Iterator[Score]:
    """Yield the Brier score, the expected calibration error over bins, the bins, and what thresholds keep.

    A bin (`bin 1` is of the least probable links) has its mean probability, `expected`, and the share that is true,
    `true_share`, in percent. A threshold (`precision 90%`) has its similarity, the precision of the links above it with
    an interval over documents, and the share of links it keeps.

    Raises:
        ValueError: there is no observation.
    """
    probabilities = calibration.of_features(observed.features)
    bins = reliability(probabilities, observed.are_true)
    brier = float(np.mean((probabilities - observed.are_true) ** 2))
    error = 100 * sum(each.links * abs(each.expected - each.true) for each in bins) / len(observed)
    yield Score("brier", brier, n=len(observed), unit="squared probability")
    yield Score("expected_calibration_error", error, n=len(observed))
    for number, each in enumerate(bins, start=1):
        yield Score("expected", 100 * each.expected, n=each.links, group=f"bin {number}")
        yield Score("true_share", 100 * each.true, n=each.links, group=f"bin {number}")
    for wanted in WANTED_PRECISIONS:
        try:
            yield from _kept(observed, calibration.threshold(wanted), f"precision {wanted:.0%}")
        except UsageError:  # none above it is reached either
            note = f"none is proven by {calibration.documents} validation documents{calibration.more(wanted)}"
            yield Score("threshold", group=f"precision {wanted:.0%}", unit="similarity", note=note)
            return


class Bin(NamedTuple):
    """Links of about equal probability: their mean probability, the share that is true, how many there are."""

    expected: float
    true: float
    links: int


def reliability(probabilities: Float64, are_true: Bool, *, bins: int = RELIABILITY_BINS) -> list[Bin]:
    """Return links in bins of about equal size by probability; equal probabilities share a bin.

    Raises:
        ValueError: there is no link.

    >>> reliability(np.array([0.2, 0.2, 0.9]), np.array([False, False, True]), bins=2)
    [Bin(expected=0.2, true=0.0, links=2), Bin(expected=0.9, true=1.0, links=1)]
    """
    if not len(probabilities):
        raise ValueError("expected links, found none")
    _, rows, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts + 1) / 2  # mean position, from 0, of equal probabilities
    numbers = (middles * bins // len(probabilities)).astype(np.int64)[rows]
    parts = [numbers == number for number in np.unique(numbers)]
    return [Bin(float(probabilities[p].mean()), float(are_true[p].mean()), int(p.sum())) for p in parts]


def _kept(observed: Observations, threshold: float, group: str) -> Iterator[Score]:
    is_kept = observed.similarities >= threshold
    n = int(is_kept.sum())
    yield Score("threshold", threshold, n=n, group=group, unit="similarity")
    if n:
        _, rows = np.unique(observed.documents[is_kept], return_inverse=True)
        shares = np.bincount(rows, weights=observed.are_true[is_kept]) / np.bincount(rows)
        yield mean_interval(100 * shares).score("precision", n=n, group=group)
    yield Score("kept", 100 * float(is_kept.mean()), n=n, group=group)
