"""What a newcomer wants to know after a training: is the model good, and what comes next. The rest is in the report."""

from collections.abc import Sequence
from typing import Final

from training.evaluation.baselines import Baseline
from training.evaluation.evaluate import RANDOM, documents_of, kind_of, means_of
from training.evaluation.judge import DECOYS
from training.metrics.links import ScoreKind
from training.metrics.scores import Score
from training.report.sections import cell_text, score_table, value_text

GOOD, FAIR = 85.0, 70.0  # AUC in percent; the papers' models have 66 to 99 on their sets
UNTRAINED: Final = Baseline.CLASS_NAMES


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


def next_lines(model: str, *, dataset: str, lake: str, is_scored: bool) -> list[str]:
    """Return the commands that follow a training: those of a report only if it has scores."""
    link = f"  multilink link --model {model} --input new.jsonl --output links.parquet --page linked"
    if not is_scored:
        return ["next: link your own documents; `multilink label` and `measure` check links without known ones", link]
    report = f"  multilink evaluate --model {model} --dataset {dataset} --lake {lake} --report report"
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
