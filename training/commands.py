"""What the command evaluate does: plain functions from arguments to a summary.

`run_train` is in `tracked_training.py`, linking in `linking_commands.py`, promotion in `mlflow/`. Parsing
arguments, printing and exit statuses are `training.cli`'s. A function that takes long tells its progress to `say`, a
line at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from schemas.documents import Split
from schemas.lake import Lake
from training.evaluation.baselines import BaselineConfig
from training.evaluation.beside import Beside, score_beside
from training.evaluation.evaluate import Evaluation, MeanScores
from training.evaluation.measures import Judged, Measures, judge_model
from training.evaluation.pair_scores import PairMeans
from training.evaluation.rows import EvaluationReport, evaluation_report
from training.evaluation.score_files import evaluate_scores
from training.mlflow.evaluations import nostruct_rival, record_evaluation
from training.mlflow.loading import LoadedModel, load
from training.mlflow.runs import log_scores, open_tracking

Say = Callable[[str], None]
STANDARD_BASELINES = BaselineConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSummary:
    """Scores of a model, or of a scores file (then there is no model and no data set), in percent.

    Attributes:
        evaluation: everything behind the numbers, for a report.
        model: its address, where there is one.
        dataset: NAME@VERSION, where there is one.
        split: split of it.
        loaded: the model itself, where there is one.
        measures: everything but link scores, where there is a model.
        report: all numbers as a table, where there is a model.
        beside: the baselines on the same documents, where there is a model.
    """

    evaluation: Evaluation
    model: str | None = None
    dataset: str | None = None
    split: str | None = None
    loaded: LoadedModel | None = None
    measures: Measures | None = None
    report: EvaluationReport | None = None
    beside: Beside = field(default_factory=Beside)

    def to_json(self) -> dict[str, Any]:
        """Return the means with their intervals, random's beside them, and the numbers of documents.

        Where documents are pairs, the means are of retrieval, and random's is what is expected of it.
        """
        about = {"model": self.model, "dataset": self.dataset, "split": self.split}
        means, chance = self.evaluation.link_means, self.evaluation.random_means
        pairs = self.evaluation.pairs if means is None else None
        return {
            **{name: value for name, value in about.items() if value is not None},
            **({} if means is None else asdict(means)),
            **({} if pairs is None else asdict(pairs.means())),
            "documents": len(self.evaluation.scored if pairs is None else pairs.documents),
            "left_out": dict(self.evaluation.left_out),
            **({} if chance is None else {"random": asdict(chance)}),
            **({} if pairs is None else {"random": asdict(pairs.chance)}),
            "baselines": {found.name: asdict(found.means) for found in self.beside.scores},
            **({} if self.report is None else {"measures": self.report.values()}),
        }


def run_evaluate(
    *,
    model: str,
    dataset: str,
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    with_captions: bool = False,
    baselines: BaselineConfig | None = STANDARD_BASELINES,
    say: Say,
) -> EvaluateSummary:
    """Measure a model on a split of a data set; a registered model's run gets the table and the scores as metrics.

    Args:
        model: its address.
        dataset: NAME or NAME@VERSION.
        lake: path or URI of the lake.
        split: train, val or test.
        tracking: MLflow's address.
        with_captions: whether caption metrics are computed.
        baselines: what the baselines beside it read; None: none is scored but random.
        say: takes a line of progress.

    Raises:
        UsageError: the model, data set or split is not there, or they do not fit together.
    """
    home = Lake.at(lake)
    client = open_tracking(tracking)
    reference = "@".join(home.find(dataset))
    loaded = load(model, client)
    say(f"scoring {loaded.uri} on {reference}, split {split}")
    judged = judge_model(loaded.model, home, reference, split, with_captions=with_captions)
    beside = Beside()
    if baselines is not None:
        rival = nostruct_rival(client, loaded, reference)
        beside = score_beside(
            loaded.model, judged.evaluation, home, reference, split=str(split), config=baselines, rival=rival
        )
    report = _table(loaded, judged, beside, reference=reference, split=str(split))
    fitted = judged.measures.calibration
    record_evaluation(client, loaded, report, None if fitted is None else fitted.calibration)
    means = judged.evaluation.own_means
    if loaded.run_id is not None and means is not None and reference == loaded.model.card.data.reference:
        log_scores(client, loaded.run_id, _flat(means, f"{split}_"))
    return EvaluateSummary(
        evaluation=judged.evaluation,
        model=loaded.uri,
        dataset=reference,
        split=str(split),
        loaded=loaded,
        measures=judged.measures,
        report=report,
        beside=beside,
    )


def run_evaluate_scores(path: str) -> EvaluateSummary:
    """Score the similarity matrices of a JSON Lines file."""
    return EvaluateSummary(evaluation=evaluate_scores(Path(path)))


def _table(loaded: LoadedModel, judged: Judged, beside: Beside, *, reference: str, split: str) -> EvaluationReport:
    dataset, _, version = reference.partition("@")
    return evaluation_report(
        judged.evaluation,
        judged.measures,
        beside,
        model=loaded.version.name if loaded.version else loaded.uri,
        model_version=loaded.version.version if loaded.version else None,
        dataset=dataset,
        dataset_version=version,
        split=split,
    )


def _flat(means: MeanScores | PairMeans, prefix: str) -> dict[str, float]:
    return {
        f"{prefix}{score}{suffix}": interval[part]
        for score, interval in asdict(means).items()
        for part, suffix in (("mean", ""), ("low", "_low"), ("high", "_high"))
    }
