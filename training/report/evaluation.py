"""The page of an evaluation: its tables and charts, example documents, and how the model was trained.

And what a newcomer wants to know after a training: is the model good, and what comes next.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from schemas.configs import resolve
from schemas.documents import Split
from schemas.manifest import SplitStatistics
from schemas.overrides import flatten
from training.config import Select, TrainConfig
from training.evaluation.baselines import Baseline
from training.evaluation.evaluate import (
    RANDOM,
    EvaluationReport,
    candidates_of,
    documents_of,
    kind_of,
    left_out_of,
    means_of,
)
from training.evaluation.judge import ANALYSIS, CALIBRATION, DECOYS
from training.loop.epoch import ENOUGH_TO_RANK
from training.metrics.calibration import Calibration
from training.metrics.intervals import Score
from training.metrics.links import ScoreKind
from training.project import command
from training.report.examples import ExampleGroups
from training.report.figures import line_chart, reliability_chart
from training.report.pages import draw_groups, edge_legend, render
from training.report.sections import (
    absent_baselines,
    cell_text,
    columns_of,
    score_table,
    sections,
    value_text,
)

SELECT_RULES: Mapping[Select, str] = {
    Select.LOSS: "At this epoch the validation loss is lowest.",
    Select.LAST: "It is the last epoch.",
    Select.RETRIEVAL: (
        "At this epoch a validation document's own images rank best for its sentences, among the images of other "
        "documents."
    ),
    Select.MEDIAN_RANK: (
        "At this epoch the median rank of a validation document's own images for its sentences, among the images of "
        "other documents, is lowest."
    ),
}
_PANELS: Mapping[str, Mapping[str, str]] = {
    "Loss": {"validation_loss": "validation", "train_loss": "training"},
    "Validation AUC, by cosines": {"validation_auc": "AUC"},
    "Validation p@1, by cosines": {"validation_precision_at_1": "p@1"},
    "Validation rank of the own image set, 1 being best": {
        "validation_rank": "mean",
        "validation_median_rank": "median",
    },
}

Epoch = Mapping[str, float]
Figures = list[tuple[str, Markup]]
GOOD, FAIR = 85.0, 70.0  # AUC in percent; the papers' models have 66 to 99 on their sets
UNTRAINED: Final = Baseline.CLASS_NAMES


def report_page(
    table: EvaluationReport,
    config: TrainConfig,
    *,
    kept_epoch: int,
    history: Sequence[Epoch] = (),
    examples: ExampleGroups = MappingProxyType({}),
    statistics: Mapping[str, SplitStatistics] = MappingProxyType({}),
    calibration: Calibration | None = None,
    way: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the page of an evaluation. It has no date: equal evaluations give equal pages.

    Args:
        table: what was evaluated on what, and every number.
        config: resolved configuration the model was trained with.
        kept_epoch: the epoch whose weights are the model, counted as in the history.
        history: one mapping an epoch, with `epoch` and any of `train_loss`, `validation_loss`, `validation_auc`,
            `validation_precision_at_1` (both percentages, by cosines), `validation_rank` and `validation_median_rank`;
            absent and NaN are gaps.
        examples: documents to draw, in groups.
        statistics: split -> statistics, from the data set's manifest.
        calibration: the one that was judged.
        way: how the model was trained and what its similarities are, by name (`LinkModel.described`).
    """
    rows, kind, drawings = table.rows, kind_of(table.rows), draw_groups(examples)
    judges = statistics[Split.VAL].documents if Split.VAL in statistics else 0
    is_last = config.is_solved and bool(statistics) and judges < ENOUGH_TO_RANK
    select = Select.LAST if is_last else config.training.select
    return render(
        "report",
        table=table,
        config=config,
        candidates=candidates_of(rows) if kind is ScoreKind.PAIRS else None,
        documents=documents_of(rows),
        left_out=left_out_of(rows),
        traits=config.traits,
        similarity=config.similarities,
        epochs=len(history) or config.training.epochs,
        kept_epoch=kept_epoch,
        means=means_of(rows, kind),
        metrics=kind.metrics,
        scores=score_table(rows, table.model, dataset=table.dataset),
        absent_baselines=absent_baselines(rows),
        sections=sections(rows, dataset=table.dataset),
        spread_note=next((row.note for row in rows if row.measure == ANALYSIS), ""),
        way=way,
        reliability=_reliability_chart(rows),
        calibration={row.metric: row for row in rows if row.measure == CALIBRATION and not row.group},
        fitted=calibration,
        select=select,
        select_rule=SELECT_RULES[select],
        panels=training_panels(history, kept_epoch=kept_epoch),
        groups=drawings,
        legend=edge_legend(graph for _, graphs in drawings for graph in graphs),
        settings={key: json.dumps(value, ensure_ascii=False) for key, value in flatten(resolve(config)).items()},
    )


def training_panels(history: Sequence[Epoch], *, kept_epoch: int) -> Figures:
    """Return a chart for each measure that was recorded in at least one epoch (Hessel 2019, figure 3)."""
    panels = []
    for title, measures in _PANELS.items():
        lines = {name: [(row["epoch"], row.get(key)) for row in history] for key, name in measures.items()}
        lines = {
            name: points for name, points in lines.items() if any(y is not None and math.isfinite(y) for _, y in points)
        }
        if lines:
            panels.append((title, line_chart(f"{title} by epoch", lines, x_label="epoch", marked=kept_epoch)))
    return panels


def _reliability_chart(rows: Iterable[Score]) -> Markup | None:
    """Return the expected and the true share of links of a calibration."""
    bins = columns_of((row for row in rows if row.measure == CALIBRATION), ["expected", "true_share"]).values()
    expected, true = ([each[name].value or 0.0 for each in bins] for name in ("expected", "true_share"))
    links = [each["expected"].n for each in bins]
    return reliability_chart("Expected and true share of links", expected, true, links) if links else None


def outcome_lines(rows: Sequence[Score], *, dataset: str) -> list[str]:
    """Return a model's scores in words, and beside those of the baselines as a table.

    Args:
        rows: of its evaluation.
        dataset: NAME@VERSION.
    """
    table = score_table(rows, "model")
    if table is None:
        return [_without_links(rows, dataset)]
    kind = kind_of(rows)
    metric, means, count = kind.leading, means_of(rows, kind), documents_of(rows)
    words = _in_words(means[metric], means_of(rows, RANDOM)[metric], is_auc=kind is ScoreKind.LINKS)
    lines = [f"{kind.metrics[metric]} {cell_text(means[metric])} on {count} documents of {dataset}: {words}"]
    untrained = means_of(rows, UNTRAINED).get(metric)
    if untrained is not None and (untrained.value or 0.0) >= (means[metric].value or 0.0):
        lines.append(f"the model {UNTRAINED}, which needs no training, is as good here: {cell_text(untrained)}")
    return [*lines, *table.lines()]


def next_lines(model: str, *, dataset: str, lake: str, tracking: str | None, is_scored: bool) -> list[str]:
    """Return the commands that follow a training: those of a report only if it has scores."""
    link = "  " + command(
        *("link", "--model", model, "--input", "new.jsonl", "--output", "links.parquet", "--page", "linked"),
        tracking=tracking,
    )
    if not is_scored:
        return ["next: link your own documents; `multilink label` and `measure` check links without known ones", link]
    report = "  " + command(
        *("evaluate", "--model", model, "--dataset", dataset, "--lake", lake, "--report", "report"), tracking=tracking
    )
    return ["next: link your own documents, and write a report with every number", link, report]


def _in_words(score: Score, random: Score, *, is_auc: bool) -> str:
    value, chance = score.value or 0.0, random.value or 0.0
    if score.low is not None and score.low <= (chance if random.high is None else random.high):
        return "not shown to be better than random links; more documents help most"
    if not is_auc:
        return f"random has {value_text(random)}"
    if value >= GOOD:
        return "good; random has 50"
    return "fair, look at the links before you rely on them; random has 50" if value >= FAIR else "weak; random has 50"


def _without_links(rows: Sequence[Score], dataset: str) -> str:
    estimate = next((row for row in rows if row.measure == DECOYS and row.value is not None), None)
    unknown = f"{dataset} has no known links, so the model has no scores"
    if estimate is None:
        return unknown
    return f"{unknown}; about {estimate.value:.0f}% of its links are false ({estimate.note})"
