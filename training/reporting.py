"""The report of an evaluation: what the page needs is gathered here, from the model's run and from the data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from schemas.errors import UsageError
from schemas.lake import Lake
from training.commands import EvaluateSummary
from training.evaluation.beside import TITLES
from training.evaluation.contents import ModelDescription, report_content, score_row
from training.evaluation.report import write_report
from training.evaluation.report_content import RowKind, ScoreRow
from training.mlflow.registering import attach, write_card
from training.mlflow.runs import open_tracking, training_curve

REPORT_ARTIFACT = "report"


def run_report(
    summary: EvaluateSummary,
    *,
    lake: str,
    directory: Path,
    baselines: Sequence[ScoreRow] = (),
    tracking: str | None = None,
) -> Path:
    """Write the HTML report of an evaluated model, keep it with the model and its run, and return its path.

    Args:
        summary: of a model's evaluation (not of a scores file: there is no model to describe).
        baselines: rows of further models on the same documents; those of `summary.beside` are there anyway.

    Raises:
        UsageError: the summary is of a scores file.
    """
    loaded, reference = summary.loaded, summary.dataset
    if loaded is None or reference is None:
        raise UsageError("--report: expected a model and a data set; a scores file has neither")
    client = open_tracking(tracking)
    version = loaded.version
    description = ModelDescription(
        name=version.name if version else loaded.uri,
        version=version.version if version else "",
        history=() if loaded.run_id is None else training_curve(client, loaded.run_id),
    )
    beside = [
        score_row(found.title, found.means, kind=RowKind.BASELINE, note=found.note) for found in summary.beside.scores
    ]
    content = report_content(
        summary.evaluation,
        loaded.model,
        description,
        lake=Lake.at(lake),
        reference=reference,
        split=summary.split or "",
        baselines=(*baselines, *beside),
        absent_baselines={TITLES[name]: reason for name, reason in summary.beside.absent.items()},
        measures=summary.measures,
    )
    path = write_report(content, directory)
    table = [] if summary.report is None else [summary.report.write(directory)]
    for written in (path, *table):
        if loaded.run_id is not None:
            client.log_artifact(loaded.run_id, str(written), REPORT_ARTIFACT)
        if version is not None:
            attach(client, version, written, REPORT_ARTIFACT)
    if version is not None and reference == loaded.model.card.data.reference:
        write_card(client, version, loaded.model, summary.report)
    return path
