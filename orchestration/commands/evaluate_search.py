from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from schemas.console import aligned
from schemas.lake import Lake

if TYPE_CHECKING:
    from training.evaluation.evaluate import EvaluationReport


def command(
    index_path: options.IndexPath,
    lake: options.LakePath,
    split: options.Split = "test",
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write evaluation.parquet, and run.txt and qrels.txt for trec_eval."),
    ] = None,
    settings: options.ReadingSettings = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Measure how well the texts of a split find their pictures: MRR, recall at 5, 10, 50, 100, by role and language.

    Beside the model stand BM25 on what is said of the pictures, the nearest of those texts by the sentence encoder, and
    the fusion of the model and BM25. With --tracking-uri the numbers are kept with the run of the index's model, too.
    """
    from orchestration.inference.archive import Archive
    from orchestration.inference.queries import sentence_encoder
    from training.evaluation.evaluate import EvaluationReport
    from training.retrieval.evaluate import evaluate_search

    with Archive(index_path, settings or []) as archive:
        found = evaluate_search(archive.index, Lake.at(lake), split, reader=archive.reader, encode=sentence_encoder())
        manifest = archive.index.manifest
    name, _, version = manifest.dataset.partition("@")
    report = EvaluationReport(
        model=manifest.model, model_version=None, dataset=name, dataset_version=version, split=split, rows=found.rows
    )
    if output is not None:
        report.write(output)
        found.write_trec(output, tag=options.TREC_TAG)
    values = {"model": manifest.model, "dataset": manifest.dataset, "split": split, "queries": len(found.queries)}
    if tracking is not None:
        from training.mlflow.registering import record_search
        from training.mlflow.registry import open_registry

        values["run_id"] = record_search(open_registry(tracking), manifest.model, report)
    yield _evaluation_lines(report), values | {"scores": report.values()}


def _evaluation_lines(report: EvaluationReport) -> list[str]:
    """Return a row a group and system, and why a system has no numbers."""
    from training.retrieval.evaluate import METRICS

    table: dict[tuple[str, str], dict[str, str]] = {}
    for row in report.rows:
        if row.metric in METRICS and row.value is not None:
            table.setdefault((row.group, row.measure), {})[row.metric] = (
                f"{row.value:.1f} [{row.low:.1f}, {row.high:.1f}]"
            )
    head = ("", "MRR", *(metric.replace("recall_at_", "R@") for metric in METRICS[1:]))
    rows = [
        (f"{group.partition(',')[0]}  {measure}", *(own[metric] for metric in METRICS))
        for (group, measure), own in sorted(table.items())
    ]
    told = [f"{row.measure}: {row.note}" for row in report.rows if row.note]
    return [
        f"{report.model} on {report.dataset}@{report.dataset_version}, {report.split}",
        *aligned([head, *rows]),
        *told,
    ]
