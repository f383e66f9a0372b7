"""The report of a model's evaluation: its page and its table.

A report is made of what is in the registry and the lake, so it can be made later, too.
"""

import tempfile
from pathlib import Path

from schemas.console import Say
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.mlflow.loading import open_registry
from training.mlflow.registering import attach, write_card
from training.mlflow.runs import DATASET_TAG, VERSION_TAG, training_curve
from training.mlflow.tracked_training import TrainSummary
from training.report.evaluation import report_page
from training.report.examples import example_groups
from training.report.pages import write_page
from training.workflows.evaluate import EvaluateSummary, run_evaluate

REPORT_ARTIFACT = "report"
JUDGED_SPLITS = (Split.TEST, Split.VAL)


def run_report(summary: EvaluateSummary, directory: Path, *, lake: str, tracking: str | None = None) -> Path:
    """Write the HTML report of an evaluated model, keep it with the model and its run, and return its path.

    Args:
        summary: of a model's evaluation (not of a scores file or a baseline: there is no model to describe).
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
        history=() if loaded.run_id is None else training_curve(client, loaded.run_id),
        examples=example_groups(judged.evaluation, manifest, folder, report.split, regions=card.data.region_features),
        statistics=manifest.splits,
        calibration=judged.calibration,
        way=loaded.model.described(),
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

    Where no split has a known link, what needs none is measured on the first that has documents.
    """
    version, tags = trained.version, trained.version.tags
    reference = f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}"
    manifest, _ = read_manifest(Lake.at(lake), reference)
    filled = [each for each in (*JUDGED_SPLITS, Split.TRAIN) if manifest.parts("documents", each)]
    split = judged_split(manifest) or filled[0]
    try:
        summary = run_evaluate(model=version.uri, dataset=reference, lake=lake, split=split, tracking=tracking, say=say)
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
