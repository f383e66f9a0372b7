"""The report's sections on the wider measures: tables and drawings, ready for the template.

What was measured is `measures.py`'s; words are in `report_measures.html.j2`; nothing here computes a score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from training.evaluation.analysis import DocumentAnalysis, spearman
from training.evaluation.bootstrap import Interval
from training.evaluation.breakdowns import GroupScores
from training.evaluation.calibration import CalibrationJudgement, KeptLinks
from training.evaluation.charts import Point, Shares, path_chart, reliability_chart, scatter, share_columns
from training.evaluation.confusion import ConfusionGroup
from training.evaluation.example_graph import thumbnail_uri
from training.evaluation.measures import ConfusedImages, Measures
from training.evaluation.published_retrieval import PublishedRetrieval, published_retrieval, published_source
from training.evaluation.retrieval import RetrievalScores, Statistic
from training.evaluation.retrieval_groups import LANGUAGE, GroupRetrieval

TO = "–\u2060"  # between two numbers, where no line may end
CONFUSION_CLASSES = ("part-right", "part-confused", "part-elsewhere")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: its column heads (the first is that of the row names), and rows of a name and its cells."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class ConfusedPair:
    """Two pictures side by side, of which the model took the second for the first."""

    document: str
    sentence: str
    image: str | None
    chosen: str | None
    nearness: float


@dataclass(frozen=True, slots=True)
class CalibrationPart:
    """Reliability, thresholds, and what they come from."""

    chart: Markup
    thresholds: Grid
    judged: CalibrationJudgement


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureParts:
    """The sections; a None or empty one is not on the page."""

    retrieval: Grid | None
    relations: Grid | None
    groups: Grid | None
    retrieval_groups: Grid | None
    spread: tuple[Markup, ...]
    spread_vectors: tuple[str, str]
    regressions: Grid | None
    confusion: Markup | None
    confused: tuple[ConfusedPair, ...]
    calibration: CalibrationPart | None
    no_calibration: str
    captions: Grid | None
    captions_absent: Mapping[str, str]


def measure_parts(measures: Measures, pictures: Mapping[str, bytes | None], *, dataset: str = "") -> MeasureParts:
    """Return the sections of what was measured.

    Args:
        measures: of one evaluation.
        pictures: JPEGs by content hash, for the confused images.
        dataset: whose published rows stand beside ours.
    """
    analysis = measures.analysis
    captions = measures.captions
    return MeasureParts(
        retrieval=retrieval_grid(measures.retrieval, measures.refined, published_retrieval(dataset)),
        relations=relation_grid(measures),
        groups=group_grid(measures.groups),
        retrieval_groups=retrieval_group_grid(measures.retrieval_groups, dataset),
        spread=spread_charts(analysis),
        spread_vectors=("", "") if analysis is None else (analysis.image_vectors, analysis.text_vectors),
        regressions=regression_grid(analysis),
        confusion=confusion_chart(measures.confusion),
        confused=tuple(_confused(pair, pictures) for pair in measures.confused),
        calibration=None if measures.calibration is None else calibration_part(measures.calibration),
        no_calibration=measures.absent.get("calibration", ""),
        captions=None
        if captions is None or not captions.values
        else Grid(
            ("Metric", "Score x 100"),
            tuple((name, (f"{value:.1f}",)) for name, value in captions.values.items()),
        ),
        captions_absent={} if captions is None else captions.absent,
    )


def retrieval_grid(
    scores: Sequence[RetrievalScores],
    refined: Sequence[RetrievalScores],
    published: Sequence[PublishedRetrieval] = (),
) -> Grid | None:
    """Return retrieval as the papers print it: recall at 1, 5 and 10 and the median rank; published rows last."""
    rows = [(row, "") for row in scores] + [(row, ", refined by relations") for row in refined]
    if not rows:
        return None
    cells = tuple(
        (
            f"{row.direction}, {_pool(row)}{note}",
            (*(_recall(row.recall[cutoff]) for cutoff in row.recall), _rank(row.median_rank)),
        )
        for row, note in rows
    )
    others = tuple((f"{row.direction}: {row.model} ({row.source})", _published_cells(row)) for row in published)
    return Grid(("Direction and pool", "R@1", "R@5", "R@10", "Median rank"), (*cells, *others))


def relation_grid(measures: Measures) -> Grid | None:
    """Return the average precision of each relation beside what a guess would have."""
    if not measures.relations:
        return None
    rows = tuple(
        (
            score.name,
            (
                "–" if score.average_precision is None else f"{score.average_precision:.1f}",
                "" if score.low is None else f"{score.low:.1f}{TO}{score.high:.1f}",
                f"{score.rate:.1f}",
                f"{score.pairs:,}",
            ),
        )
        for score in measures.relations
    )
    return Grid(("Relation", "Average precision", "95%", "Rate", "Pairs"), rows)


def group_grid(groups: Sequence[GroupScores]) -> Grid | None:
    """Return link scores by language and by role."""
    if not groups:
        return None
    rows = tuple(
        (
            f"{group.kind} {group.name}",
            (
                *(interval_text(cell) for cell in (group.auc, group.precision_at_1, group.precision_at_5)),
                f"{group.documents:,}",
            ),
        )
        for group in groups
    )
    return Grid(("Group", "AUC", "p@1", "p@5", "Documents"), rows)


def retrieval_group_grid(groups: Sequence[GroupRetrieval], dataset: str = "") -> Grid | None:
    """Return retrieval by language, role or source; below each row the published one of the same source."""
    if not groups:
        return None
    rows: list[tuple[str, tuple[str, ...]]] = []
    for group in groups:
        row = group.scores
        cells = (*(_recall(row.recall[cutoff]) for cutoff in row.recall), _rank(row.median_rank))
        rows.append((f"{group.kind} {group.name}: {row.direction}, {_pool(row)}", cells))
        published = published_source(dataset, group.name) if group.kind != LANGUAGE else ()
        rows += [
            (f"{other.model} ({other.source})", _published_cells(other))
            for other in published
            if other.direction == row.direction
        ]
    return Grid(("Group, direction and pool", "R@1", "R@5", "R@10", "Median rank"), tuple(rows))


def spread_charts(analysis: DocumentAnalysis | None) -> tuple[Markup, ...]:
    """Return AUC against the spread of images, and against that of sentences."""
    if analysis is None:
        return ()
    sides = (("images", analysis.image_spread), ("sentences", analysis.text_spread))
    return tuple(
        scatter(
            f"AUC of a document against the spread of its {name}",
            [Point(x, y, f"spread {x:.3f}, AUC {y:.1f}") for x, y in zip(values, analysis.auc, strict=True)],
            x_label=f"spread of the {name}",
            level=50.0,
        )
        for name, values in sides
    )


def regression_grid(analysis: DocumentAnalysis | None) -> Grid | None:
    """Return the share of the variance of AUC that each set of predictors explains."""
    if analysis is None or not analysis.regressions:
        return None
    rows = tuple(
        (
            fit.name,
            (
                f"{fit.r_squared:.1%}",
                f"{fit.adjusted_r_squared:.1%}",
                f"{fit.predictors}",
                f"{fit.f:.1f}",
                "<\u00a00.001" if fit.p < 0.001 else f"{fit.p:.3f}",
            ),
        )
        for fit in analysis.regressions
    )
    return Grid(("Explained by", "R²", "Adjusted", "Predictors", "F", "p"), rows)


def confusion_chart(groups: Sequence[ConfusionGroup]) -> Markup | None:
    """Return what was chosen for sentences, by how much their image looks like another one."""
    if not groups:
        return None
    columns = [
        Shares(
            f"{group.low:.2f}–{group.high:.2f}",
            (group.right, group.confused, group.elsewhere),
            f"cosine {group.low:.2f} to {group.high:.2f}, {group.sentences} sentences: right {group.right:.0f}%, the "
            f"nearest image {group.confused:.0f}% (by chance {group.chance:.0f}%), another {group.elsewhere:.0f}%",
        )
        for group in groups
    ]
    label = "cosine of the true image and the nearest other one"
    return share_columns("Image chosen for a sentence", columns, x_label=label, classes=CONFUSION_CLASSES)


def calibration_part(judged: CalibrationJudgement) -> CalibrationPart:
    """Return reliability and thresholds of a calibration."""
    points = [
        Point(
            100 * row.probability,
            100 * row.share,
            f"expected {row.probability:.0%}, true {row.share:.0%} of {row.links} links",
        )
        for row in judged.bins
    ]
    chart = reliability_chart("Expected and true share of links", points, [row.links for row in judged.bins])
    heads = ("Wanted precision", "Similarity from", "Precision here", "Links kept")
    return CalibrationPart(chart, Grid(heads, tuple(_threshold_row(kept) for kept in judged.kept)), judged)


def loss_and_auc(
    history: Iterable[Mapping[str, float | None]], *, kept_epoch: int
) -> tuple[Markup, float | None] | None:
    """Return validation AUC against validation loss, a dot an epoch, with their rank correlation.

    It is figure 3 of Hessel 2019. None without two epochs that have both; no correlation where either stays the same.
    """
    points = list(_epochs(history))
    if len(points) < 2:
        return None
    marked = [point.name == _epoch_name(kept_epoch) for point in points]
    chart = path_chart("Validation AUC against validation loss", points, x_label="inter-document loss", marked=marked)
    return chart, spearman([point.x for point in points], [point.y for point in points])


def interval_text(interval: Interval) -> str:
    """Return a mean with its 95% interval."""
    return f"{interval.mean:.1f} ({interval.low:.1f}{TO}{interval.high:.1f})"


def _epochs(history: Iterable[Mapping[str, float | None]]) -> Iterator[Point]:
    """Yield the epochs whose loss and AUC are both known."""
    for row in history:
        epoch, loss, auc = (row.get(name) for name in ("epoch", "validation_loss", "validation_auc"))
        if epoch is not None and loss is not None and auc is not None and math.isfinite(loss) and math.isfinite(auc):
            yield Point(loss, auc, _epoch_name(epoch))


def _epoch_name(epoch: float) -> str:
    return f"epoch {epoch:g}"


def _pool(row: RetrievalScores) -> str:
    if row.samples:
        return f"{row.samples} samples of {row.candidates:,.0f}"
    return f"all {row.candidates:,.0f}"


def _recall(found: Statistic) -> str:
    if found.low is not None and found.high is not None:
        return f"{found.value:.1f} ({found.low:.1f}{TO}{found.high:.1f})"
    return f"{found.value:.1f} ± {found.deviation:.1f}"


def _published_cells(row: PublishedRetrieval) -> tuple[str, ...]:
    recall = tuple("" if value is None else f"{value:.1f}" for value in (row.recall_at_1, row.recall_at_5))
    return (*recall, f"{row.recall_at_10:.1f}", "" if row.median_rank is None else f"{row.median_rank:g}")


def _rank(found: Statistic) -> str:
    if found.deviation is not None:
        return f"{found.value:.1f} ± {found.deviation:.1f}"
    return f"{found.value:g}" if found.low is None else f"{found.value:g} ({found.low:g}{TO}{found.high:g})"


def _threshold_row(kept: KeptLinks) -> tuple[str, tuple[str, ...]]:
    wanted = f"{kept.wanted:.0%}"
    if kept.threshold is None:
        return wanted, ("not reached on validation", "", "")
    precision = "no link" if kept.precision is None else interval_text(kept.precision)
    return wanted, (f"{kept.threshold:.3f}", precision, f"{kept.links:,} ({kept.kept:.0f}%)")


def _confused(pair: ConfusedImages, pictures: Mapping[str, bytes | None]) -> ConfusedPair:
    image, chosen = (thumbnail_uri(pictures.get(key)) for key in (pair.image, pair.chosen))
    return ConfusedPair(pair.document, pair.sentence, image, chosen, pair.nearness)
