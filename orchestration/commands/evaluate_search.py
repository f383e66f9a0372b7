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
    from newsroom.search.evaluate import score_lines
    from orchestration.workflows.search_evaluation import evaluate_archive

    report, queries, run = evaluate_archive(
        index_path, Lake.at(lake), split, settings or [], output=output, tracking=tracking
    )
    values: dict[str, object] = {
        "model": report.model,
        "dataset": f"{report.dataset}@{report.dataset_version}",
        "split": split,
    }
    values |= {"queries": queries, "scores": report.values()} | ({} if run is None else {"run_id": run})
    yield score_lines(report), values
