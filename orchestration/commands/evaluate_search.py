from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.lake import Lake


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

    The model is compared with BM25 on the pictures' titles and captions, the nearest of these by the sentence encoder,
    and the fusion of the model and BM25. With --tracking-uri the numbers are stored with the run of the model, too.
    """
    from orchestration.inference.archive import Archive
    from orchestration.inference.queries import sentence_encoder
    from training.evaluation.evaluate import EvaluationReport
    from training.retrieval.evaluate import evaluate_search, score_lines

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
        from training.mlflow.loading import open_registry
        from training.mlflow.registering import record_search

        values["run_id"] = record_search(open_registry(tracking), manifest.model, report)
    yield score_lines(report), values | {"scores": report.values()}
