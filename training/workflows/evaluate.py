"""A model or a file of scores is scored on a split, and a registered model's run gets numbers and report.

A report is made of what is in the registry and the lake, so it can be made later, too.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import Say, UsageError
from training.evaluation.baselines import TITLES, score_beside
from training.evaluation.evaluate import (
    RANDOM,
    STANDARD_CONFIG,
    EvaluateConfig,
    Evaluation,
    EvaluationReport,
    documents_of,
    evaluate_scores,
    interval_json,
    kind_of,
    left_out_of,
    means_of,
)
from training.evaluation.judge import CALIBRATION, Judged, judge_model
from training.metrics.intervals import Score
from training.mlflow.loading import load, open_registry
from training.mlflow.promotion import count_look
from training.mlflow.registering import attach, load_nostruct, record_evaluation, write_card
from training.mlflow.runs import training_curve
from training.mlflow.tracked_training import TrainSummary
from training.promotions.loaded import LoadedModel
from training.report.evaluation import next_lines, outcome_lines, report_page
from training.report.examples import example_groups
from training.report.pages import write_page
from training.report.sections import score_table, sections

REPORT_ARTIFACT = "report"
JUDGED_SPLITS = (Split.TEST, Split.VAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSummary:
    """Scores of a model or of a file of scores, in percent.

    Attributes:
        evaluation: everything behind the numbers, for a report.
        rows: every number.
        dataset: NAME@VERSION, where there is one.
        loaded: the model itself, where there is one.
        judged: what else was measured, where there is a model.
        report: the rows as a table, where there is a model.
        notes: further lines for a person.
        values: what was evaluated, for a machine.
    """

    evaluation: Evaluation
    rows: tuple[Score, ...]
    dataset: str | None = None
    loaded: LoadedModel | None = None
    judged: Judged | None = None
    report: EvaluationReport | None = None
    notes: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def means(self, measure: str | None = None) -> dict[str, Score]:
        """Return metric -> mean of the model, or of a baseline beside it; where documents are pairs, of retrieval."""
        return means_of(self.rows, measure or kind_of(self.rows))

    def lines(self) -> list[str]:
        """Return the scores as a table, baselines and random below, what was left out, and the other tables."""
        dataset, count = (self.dataset or "").partition("@")[0], documents_of(self.rows)
        table = score_table(self.rows, "model", dataset=dataset)
        left_out = ", ".join(f"{lost} {reason}" for reason, lost in left_out_of(self.rows).items())
        lines = [] if table is None else [*table.lines(), *table.footnotes]
        lines.append(f"{count} documents; left out: {left_out or 'none'}")
        if self.judged is not None:
            lines += [line for each in sections(self.rows, dataset=dataset).values() for line in ("", *each.lines())]
        return [*lines, *self.notes]

    def write_calibration(self, path: Path) -> None:
        """Write what makes probabilities of similarities.

        Raises:
            UsageError: there is none: too few validation links are known.
        """
        if self.judged is None or self.judged.calibration is None:
            why = "; ".join(row.note for row in self.rows if CALIBRATION in (row.group, row.measure))
            raise UsageError(f"--calibration: {self.dataset} has none{': ' if why else ''}{why}")
        path.write_text(self.judged.calibration.to_json(), encoding="utf-8")

    def outcome(self, lake: str, tracking: str | None) -> list[str]:
        """Return what a newcomer wants to know of a model: is it good, and what comes next."""
        dataset, uri = self.dataset or "", self.loaded.uri if self.loaded else ""
        is_scored = score_table(self.rows, "model") is not None
        return [
            *outcome_lines(self.rows, dataset=dataset),
            *next_lines(uri, dataset=dataset, lake=lake, tracking=tracking, is_scored=is_scored),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the means with their intervals, random's beside them, and the numbers of documents."""
        baselines = {name: _json(self.means(name)) for name in TITLES if self.means(name)}
        return {
            **self.values,
            **_json(self.means()),
            "documents": documents_of(self.rows),
            "left_out": dict(self.evaluation.scores.left_out),
            RANDOM: _json(self.means(RANDOM)),
            "baselines": baselines,
            **({} if self.report is None else {"measures": self.report.values()}),
        }


def run_evaluate(
    *,
    model: str,
    dataset: str,
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    config: EvaluateConfig = STANDARD_CONFIG,
    with_baselines: bool = True,
    needs_links: bool = False,
    say: Say,
) -> EvaluateSummary:
    """Measure a model on a split of a data set; a registered model's run gets the table and the scores as metrics.

    Args:
        model: its address.
        dataset: NAME or NAME@VERSION.
        lake: path or URI of the lake.
        split: train, val or test.
        tracking: MLflow's address.
        config: what the baselines read, and how retrieval is measured.
        with_baselines: whether baselines other than random are scored, too.
        needs_links: whether a split of which nothing is known to be linked is an error.
        say: takes a line of progress.

    Raises:
        UsageError: the model, data set or split is not there, or they do not fit together.
    """
    home, client = Lake.at(lake), open_registry(tracking, [model])
    reference, loaded = "@".join(home.find(dataset)), load(model, client)
    say(f"scoring {loaded.uri} on {reference}, split {split}")
    judged = judge_model(loaded.model, home, reference, split, config=config, needs_links=needs_links)
    beside: tuple[Score, ...] = ()
    if with_baselines and (judged.evaluation.scores or judged.evaluation.pairs):
        say("scoring the baselines on the same documents")
        beside = score_beside(
            loaded.model,
            judged.evaluation,
            home,
            reference,
            split=str(split),
            config=config,
            load_nostruct=partial(load_nostruct, client, loaded, reference),
        )
    report = _report_of(loaded, reference, str(split), (*judged.rows, *beside))
    record_evaluation(client, loaded, report, judged.calibration)
    uncounted = None if loaded.version is None else count_look(client, loaded.version, home, reference, str(split))
    notes = (
        () if uncounted is None else (f"not counted as a candidate, though the gate judges by {split}: {uncounted}",)
    )
    return EvaluateSummary(
        evaluation=judged.evaluation,
        rows=report.rows,
        dataset=reference,
        loaded=loaded,
        judged=judged,
        report=report,
        notes=notes,
        values={"model": loaded.uri, "dataset": reference, "split": str(split)},
    )


def _report_of(loaded: LoadedModel, reference: str, split: str, rows: tuple[Score, ...]) -> EvaluationReport:
    name, _, version = reference.partition("@")
    return EvaluationReport(
        model=loaded.version.name if loaded.version else loaded.uri,
        model_version=loaded.version.version if loaded.version else None,
        dataset=name,
        dataset_version=version,
        split=split,
        rows=rows,
    )


def run_evaluate_scores(path: Path) -> EvaluateSummary:
    """Score the similarity matrices of a JSON Lines file."""
    evaluation = evaluate_scores(path)
    return EvaluateSummary(evaluation=evaluation, rows=tuple(evaluation.rows()))


def _json(means: Mapping[str, Score]) -> dict[str, Any]:
    """Return each mean with its interval; a number that is expected, and not measured, has none."""
    return {metric: score.value if score.low is None else interval_json(score) for metric, score in means.items()}


def run_report(summary: EvaluateSummary, directory: Path, *, lake: str, tracking: str | None = None) -> Path:
    """Write the HTML report of an evaluated model, keep it with the model and its run, and return its path.

    Args:
        summary: of a model's evaluation (not of a file of scores: there is no model to describe).
        directory: for the page and the table.
        lake: holds the data set.
        tracking: MLflow's address.

    Raises:
        UsageError: the summary is of no model.
    """
    loaded, judged, report = summary.loaded, summary.judged, summary.report
    if loaded is None or judged is None or report is None:
        raise UsageError("--report: expected --model and --dataset; a file of scores has no model to report on")
    client, version, card = open_registry(tracking, [loaded.uri]), loaded.version, loaded.model.card
    manifest, folder = read_manifest(Lake.at(lake), f"{report.dataset}@{report.dataset_version}")
    page = report_page(
        report,
        card.config,
        kept_epoch=card.epoch,
        history=() if version is None else training_curve(client, str(version.run_id)),
        examples=example_groups(judged.evaluation, manifest, folder, report.split, regions=card.data.region_features),
        statistics=manifest.splits,
        calibration=judged.calibration,
        way=loaded.model.described(),
    )
    path = write_page(directory, page)
    for written in (path, report.write(directory)):
        if version is not None:
            client.log_artifact(str(version.run_id), str(written), REPORT_ARTIFACT)
            attach(client, version, written, REPORT_ARTIFACT)
    if version is not None and summary.dataset == card.data.reference:
        write_card(client, version, loaded.model, report)
    return path


def run_training_report(
    trained: TrainSummary, *, lake: str, tracking: str | None = None, say: Say
) -> EvaluateSummary | None:
    """Judge the model of a training run and keep table, report and card with its version; None where it cannot be.

    Args:
        trained: summary of the run.
        lake: path or URI of the lake.
        tracking: MLflow's address.
        say: takes a line of progress, and why there is no report.

    Where no split has a known link, what needs none is measured on the first that has documents.
    """
    version = trained.version
    manifest, _ = read_manifest(Lake.at(lake), version.dataset)
    filled = [each for each in (*JUDGED_SPLITS, Split.TRAIN) if manifest.parts("documents", each)]
    split = judged_split(manifest) or filled[0]
    try:
        summary = run_evaluate(
            model=version.uri, dataset=version.dataset, lake=lake, split=split, tracking=tracking, say=say
        )
    except UsageError as problem:
        say(f"no report: {problem}")
        return None
    with tempfile.TemporaryDirectory(prefix="multilink-report-") as scratch:
        run_report(summary, Path(scratch), lake=lake, tracking=tracking)
    say(f"report and scores are with {version.uri} and run {version.run_id}")
    return summary


def judged_split(manifest: Manifest) -> Split | None:
    """Return the test split, or else the validation split, whichever has documents with a link."""
    return next((split for split in JUDGED_SPLITS if split in manifest.splits and manifest.splits[split].links), None)
