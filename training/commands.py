"""What the commands evaluate, compare and transfer do, and the report that evaluate and a training run write.

Plain functions from arguments to a summary, which gives its lines for a person and its values for a machine.
`run_train` is in `mlflow/tracked_training.py`, linking in `linking_commands.py`, promotion in `mlflow/`. Parsing,
printing and exit statuses are `cli.py`'s. A function that takes long tells its progress to `say`, a line at a time.
A report is made from what is in the registry and the lake alone, so that it can be made later, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from schemas.console import Say
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.evaluation import Score
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from schemas.parts import split_parts
from training.data.views import TextView
from training.evaluation.baselines import TITLES, Baseline, evaluate_baseline, score_beside
from training.evaluation.evaluate import (
    RANDOM,
    STANDARD_CONFIG,
    EvaluateConfig,
    Evaluation,
    EvaluationReport,
    documents_of,
    evaluate_model,
    interval_json,
    kind_of,
    left_out_of,
    means_of,
)
from training.evaluation.judge import Judged, judge_model
from training.evaluation.score_files import evaluate_scores
from training.evaluation.studies import ModelComparison, TransferCell, compare_models, transfer_cells
from training.loop.validation import split_loss
from training.mlflow.registering import attach, load_nostruct, record_evaluation, write_card
from training.mlflow.registry import LoadedModel, load, open_registry
from training.mlflow.runs import training_curve
from training.mlflow.tracked_training import TrainSummary
from training.report.evaluation import report_page
from training.report.example_documents import SpreadDocument, example_groups, most_spread, read_pictures
from training.report.pages import write_page
from training.report.sections import score_table, sections

FEW_DOCUMENTS = 10
REPORT_ARTIFACT = "report"
JUDGED_SPLITS = (Split.TEST, Split.VAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSummary:
    """Scores of a model, a baseline or a scores file, in percent.

    Attributes:
        evaluation: everything behind the numbers, for a report.
        rows: every number.
        model: its address, where there is one.
        dataset: NAME@VERSION, where there is one.
        split: split of it.
        loaded: the model itself, where there is one.
        judged: what else was measured, where there is a model.
        report: the rows as a table, where there is a model.
        notes: what else a person is told.
        values: what else a machine is told.
    """

    evaluation: Evaluation
    rows: tuple[Score, ...]
    model: str | None = None
    dataset: str | None = None
    split: str | None = None
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
        if count < FEW_DOCUMENTS:
            lines.append(f"the intervals are of fewer than {FEW_DOCUMENTS} documents: they are too narrow to go by")
        if self.judged is not None:
            lines += [line for each in sections(self.rows, dataset=dataset).values() for line in ("", *each.lines())]
        return [*lines, *self.notes]

    def to_json(self) -> dict[str, Any]:
        """Return the means with their intervals, random's beside them, and the numbers of documents."""
        about = {"model": self.model, "dataset": self.dataset, "split": self.split}
        baselines = {name: _json(self.means(name)) for name in TITLES if self.means(name)}
        return {
            **{name: value for name, value in about.items() if value is not None},
            **_json(self.means()),
            "documents": documents_of(self.rows),
            "left_out": dict(self.evaluation.scores.left_out),
            RANDOM: _json(self.means(RANDOM)),
            "baselines": baselines,
            **({} if self.report is None else {"measures": self.report.values()}),
            **self.values,
        }


def run_evaluate(
    *,
    model: str,
    dataset: str,
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    config: EvaluateConfig = STANDARD_CONFIG,
    with_captions: bool = False,
    with_baselines: bool = True,
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
        with_captions: whether caption metrics are computed.
        with_baselines: whether others than random are scored beside it.
        say: takes a line of progress.

    Raises:
        UsageError: the model, data set or split is not there, or they do not fit together.
    """
    home = Lake.at(lake)
    client = open_registry(tracking, [model])
    reference = "@".join(home.find(dataset))
    loaded = load(model, client)
    say(f"scoring {loaded.uri} on {reference}, split {split}")
    judged = judge_model(loaded.model, home, reference, split, config=config, with_captions=with_captions)
    beside: tuple[Score, ...] = ()
    if with_baselines:
        say("scoring the baselines beside it")
        beside = score_beside(
            loaded.model,
            judged.evaluation,
            home,
            reference,
            split=str(split),
            config=config,
            load_nostruct=partial(load_nostruct, client, loaded, reference),
        )
    name, _, version = reference.partition("@")
    report = EvaluationReport(
        model=loaded.version.name if loaded.version else loaded.uri,
        model_version=loaded.version.version if loaded.version else None,
        dataset=name,
        dataset_version=version,
        split=str(split),
        rows=(*judged.rows, *beside),
    )
    record_evaluation(client, loaded, report, judged.calibration)
    return EvaluateSummary(
        evaluation=judged.evaluation,
        rows=report.rows,
        model=loaded.uri,
        dataset=reference,
        split=str(split),
        loaded=loaded,
        judged=judged,
        report=report,
    )


def run_evaluate_scores(path: Path) -> EvaluateSummary:
    """Score the similarity matrices of a JSON Lines file."""
    evaluation = evaluate_scores(path)
    return EvaluateSummary(evaluation=evaluation, rows=tuple(evaluation.rows()))


def run_baseline(
    *, baseline: str, dataset: str, lake: str, split: str = Split.TEST, config: EvaluateConfig = STANDARD_CONFIG
) -> EvaluateSummary:
    """Score a baseline on a split of a data set.

    Args:
        baseline: one of `Baseline`.
        dataset: NAME or NAME@VERSION.
        lake: path or URI.
        split: train, val or test.
        config: columns and word vectors that it reads.

    Raises:
        UsageError: there is no such baseline, data set, split or column, or no document can be scored.
    """
    if baseline not in set(Baseline):
        raise UsageError(f"--baseline {baseline}: expected one of {', '.join(Baseline)}")
    home = Lake.at(lake)
    reference = "@".join(home.find(dataset))
    found = evaluate_baseline(Baseline(baseline), home, reference, split, config=config)
    return EvaluateSummary(
        evaluation=found.evaluation,
        rows=tuple(found.evaluation.rows()),
        dataset=reference,
        split=str(split),
        notes=(found.note,) if found.note else (),
        values={"baseline": str(baseline), **found.values},
    )


def _json(means: Mapping[str, Score]) -> dict[str, Any]:
    """Return each mean with its interval; a number that is expected, and not measured, has none."""
    return {metric: score.value if score.low is None else interval_json(score) for metric, score in means.items()}


def run_compare(
    *,
    models: Sequence[str],
    dataset: str | None,
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    say: Say,
) -> ModelComparison:
    """Score models on the same documents and compare each with the first.

    Args:
        models: ids of runs, addresses as `run_evaluate` takes them, or names of baselines.
        dataset: NAME or NAME@VERSION; None: what the first model was trained on.
        lake: holds it.
        split: whose documents are scored.
        tracking: MLflow's address.
        say: takes a line of progress.

    Raises:
        UsageError: a model, the data set or split is not there; or no document could be scored with every model.
    """
    client, home = open_registry(tracking, set(models) - set(Baseline)), Lake.at(lake)
    entries = [model if model in set(Baseline) else load(model, client) for model in models]
    loaded = [entry for entry in entries if isinstance(entry, LoadedModel)]
    if not loaded:
        raise UsageError("compare: expected a model at least, found baselines alone")
    first = loaded[0].model.card
    reference = "@".join(home.find(dataset or first.data.reference))
    names = iter(model_names(loaded))
    evaluations: dict[str, Evaluation] = {}
    for entry in entries:
        say(f"scoring {entry.uri if isinstance(entry, LoadedModel) else entry} on {reference}, split {split}")
        if isinstance(entry, LoadedModel):
            evaluations[next(names)] = evaluate_model(entry.model, home, reference, split)
        else:
            view, config = TextView.of(first.config), STANDARD_CONFIG
            found = evaluate_baseline(Baseline(entry), home, reference, split, config=config, view=view)
            evaluations[entry] = found.evaluation
    return compare_models(evaluations, dataset=reference, split=str(split))


def model_names(loaded: Sequence[LoadedModel]) -> list[str]:
    """Return a short name for each model: name and version where it is registered, else its run or address.

    No name comes twice.
    """
    names: list[str] = []
    for model in loaded:
        name = f"{model.version.name} {model.version.version}" if model.version else model.uri
        if name.startswith("runs:/"):
            name = f"run {name.removeprefix('runs:/')[:8]}"
        taken = names.count(name) + sum(other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({taken + 1})" if taken else name)
    return names


def run_transfer(
    *,
    models: Sequence[str],
    datasets: Sequence[str],
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    say: Say,
) -> tuple[TransferCell, ...]:
    """Judge every model on every data set.

    Raises:
        UsageError: a model, data set or split is not there.
    """
    home, client = Lake.at(lake), open_registry(tracking, models)
    references = ["@".join(home.find(dataset)) for dataset in datasets]
    loaded = {found.uri: found.model for found in (load(model, client) for model in models)}
    return tuple(transfer_cells(loaded, home, references, split, say=say))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesSummary:
    """Documents whose images and sentences differ most, with the links that a model predicts.

    Attributes:
        model: its address.
        dataset: NAME@VERSION.
        split: of it.
        loss: of the model's objective on the split's documents; None where the objective reads links.
        documents: the widest first.
    """

    model: str
    dataset: str
    split: str
    loss: float | None
    documents: tuple[SpreadDocument, ...]

    def lines(self) -> list[str]:
        loss = "" if self.loss is None else f": loss {self.loss:.4f}"
        spreads = (f"{each.example.id}  {each.image_spread:.3f}  {each.text_spread:.3f}" for each in self.documents)
        return [f"{self.model} on {self.dataset}, {self.split}{loss}", "document, spread of images, of texts", *spreads]

    def to_json(self) -> dict[str, Any]:
        about = {"model": self.model, "dataset": self.dataset, "split": self.split, "loss": self.loss}
        return about | {"documents": [each.to_json() for each in self.documents]}


def run_examples(
    *,
    model: str,
    dataset: str,
    lake: str,
    split: str = Split.TEST,
    count: int = 6,
    tracking: str | None = None,
    say: Say,
) -> ExamplesSummary:
    """Show what a model links in a split whose links need not be known, such as WIKI's (Hessel 2019, figure 5).

    Args:
        model: its address.
        dataset: NAME or NAME@VERSION.
        lake: path or URI of the lake.
        split: train, val or test.
        count: documents that are shown.
        tracking: MLflow's address.
        say: takes a line of progress.

    Raises:
        UsageError: the model, data set or split is not there, or they do not fit together.
    """
    home, client = Lake.at(lake), open_registry(tracking, [model])
    reference = "@".join(home.find(dataset))
    loaded = load(model, client)
    say(f"linking {reference}, split {split}, with {loaded.uri}")
    manifest, folder = read_manifest(home, reference)
    return ExamplesSummary(
        model=loaded.uri,
        dataset=reference,
        split=str(split),
        loss=split_loss(loaded.model, manifest, folder, Split(split)),
        documents=tuple(most_spread(loaded.model, manifest, folder, split, count=count)),
    )


def run_report(summary: EvaluateSummary, *, lake: str, directory: Path, tracking: str | None = None) -> Path:
    """Write the HTML report of an evaluated model, keep it with the model and its run, and return its path.

    Args:
        summary: of a model's evaluation (not of a scores file or a baseline: there is no model to describe).
        lake: holds the data set.
        directory: for the page and the table.
        tracking: MLflow's address.

    Raises:
        UsageError: the summary is of no model.
    """
    loaded, judged, report = summary.loaded, summary.judged, summary.report
    if loaded is None or judged is None or report is None:
        raise UsageError("--report: expected a model and a data set; a scores file has neither")
    client, version, card = open_registry(tracking, [loaded.uri]), loaded.version, loaded.model.card
    manifest, folder = read_manifest(Lake.at(lake), f"{report.dataset}@{report.dataset_version}")
    shown = [key for pair in judged.confused for key in (pair.image, pair.chosen)]
    page = report_page(
        report,
        card.config,
        kept_epoch=card.epoch,
        history=() if loaded.run_id is None else training_curve(client, loaded.run_id),
        examples=example_groups(judged.evaluation, manifest, folder, report.split, regions=card.data.region_features),
        statistics=manifest.splits,
        calibration=judged.calibration,
        confused=judged.confused,
        pictures=read_pictures(folder, split_parts(manifest, report.split) if shown else (), shown),
    )
    path = write_page(directory, page)
    for written in (path, report.write(directory)):
        if loaded.run_id is not None:
            client.log_artifact(loaded.run_id, str(written), REPORT_ARTIFACT)
        if version is not None:
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
    """
    reference = f"{trained.dataset}@{trained.dataset_version}"
    manifest, _ = read_manifest(Lake.at(lake), reference)
    split = judged_split(manifest)
    if split is None:
        say(f"no report: no test or validation document of {reference} has known links")
        return None
    try:
        summary = run_evaluate(
            model=trained.model_uri, dataset=reference, lake=lake, split=split, tracking=tracking, say=say
        )
    except UsageError as problem:
        say(f"no report: {problem}")
        return None
    with tempfile.TemporaryDirectory(prefix="multilink-report-") as scratch:
        run_report(summary, lake=lake, directory=Path(scratch), tracking=tracking)
    say(f"report and scores are with {trained.model_uri} and run {trained.run_id}")
    return summary


def judged_split(manifest: Manifest) -> Split | None:
    """Return the test split, or else the validation split, whichever has documents with a link."""
    return next((split for split in JUDGED_SPLITS if split in manifest.splits and manifest.splits[split].links), None)
