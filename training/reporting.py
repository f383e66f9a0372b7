"""The report of an evaluation: what the page needs is gathered here, from the model's run and from the data set.

`multilink evaluate --report` makes it of any model and split; a training run ends with that of the kept model. It is
made from what is in the registry and the lake alone, so that it can be made later, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, Manifest, read_manifest
from training.commands import EvaluateSummary, run_evaluate
from training.data.lake import read_part, split_parts
from training.evaluation.evaluate import Evaluation
from training.evaluation.judge import read_pictures
from training.mlflow.registering import attach, write_card
from training.mlflow.runs import open_tracking, training_curve
from training.report.examples import ExampleDocument, ExampleGroup, choose_examples
from training.report.pages import ReportContent, report_page, write_page
from training.similarity.assignment import predicted_pairs
from training.tracked_training import TrainSummary

REPORT_ARTIFACT = "report"
EXAMPLES_EACH = 2
JUDGED_SPLITS = (Split.TEST, Split.VAL)


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
    client, version, card = open_tracking(tracking), loaded.version, loaded.model.card
    manifest, folder = read_manifest(Lake.at(lake), f"{report.dataset}@{report.dataset_version}")
    shown = [key for pair in judged.confused for key in (pair.image, pair.chosen)]
    content = ReportContent(
        table=report,
        config=card.config,
        kept_epoch=card.epoch,
        history=() if loaded.run_id is None else training_curve(client, loaded.run_id),
        examples=example_groups(judged.evaluation, manifest, folder, report.split),
        statistics=manifest.splits,
        calibration=judged.calibration,
        confused=judged.confused,
        pictures=read_pictures(manifest, folder, report.split, shown),
    )
    path = write_page(directory, report_page(content))
    for written in (path, report.write(directory)):
        if loaded.run_id is not None:
            client.log_artifact(loaded.run_id, str(written), REPORT_ARTIFACT)
        if version is not None:
            attach(client, version, written, REPORT_ARTIFACT)
    if version is not None and summary.dataset == card.data.reference:
        write_card(client, version, loaded.model, report)
    return path


def run_training_report(
    trained: TrainSummary, *, lake: str, tracking: str | None = None, say: Callable[[str], None]
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


def example_groups(
    evaluation: Evaluation, manifest: Manifest, folder: Folder, split: Split | str, *, each: int = EXAMPLES_EACH
) -> tuple[ExampleGroup, ...]:
    """Return the best, typical and worst documents with their pictures, predicted and true links."""
    chosen = choose_examples(evaluation.document_auc, each=each)
    wanted = {document for ids in chosen.values() for document in ids}
    shown: dict[str, ExampleDocument] = {}
    for documents_part, images_part in split_parts(manifest, split) if wanted else ():
        rows = _rows(folder, documents_part, ["id", "sentences", "images"], wanted)
        hashes = {image["hash"] for row in rows for image in row["images"]}
        pictures = {row["hash"]: row["jpeg"] for row in _rows(folder, images_part, ["hash", "jpeg"], hashes)}
        shown |= {row["id"]: _example(evaluation, row, pictures) for row in rows}
    return tuple(ExampleGroup(title, tuple(shown[name] for name in names)) for title, names in chosen.items())


def _rows(folder: Folder, part: FileEntry, columns: list[str], wanted: set[str]) -> list[dict[str, Any]]:
    """Return the rows of a part whose first column is wanted; nothing is read where nothing is."""
    if not wanted:
        return []
    table = read_part(folder, part, columns)
    is_wanted = pc.is_in(table.column(columns[0]), value_set=pa.array(sorted(wanted), pa.string()))
    rows: list[dict[str, Any]] = table.filter(is_wanted).to_pylist()
    return rows


def _example(evaluation: Evaluation, row: dict[str, Any], pictures: dict[str, bytes | None]) -> ExampleDocument:
    position = evaluation.ids.index(row["id"])
    matrix, numbers = evaluation.matrices[position], evaluation.sentence_numbers[position]
    known = evaluation.links[position]
    pairs = zip(*predicted_pairs(matrix), strict=True)
    return ExampleDocument(
        id=row["id"],
        auc=evaluation.document_auc.get(row["id"]),
        sentences=tuple(sentence["text"] for sentence in row["sentences"]),
        images=tuple(pictures[image["hash"]] for image in row["images"]),
        predicted=tuple((int(numbers[s]), int(i), float(matrix[s, i])) for s, i in pairs),
        links=None if known is None else tuple((int(numbers[s]), int(i)) for s, i in known),
    )
