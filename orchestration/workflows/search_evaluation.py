"""How well the texts of a split find their pictures in an index, kept in files and with the model's run."""

from collections.abc import Sequence
from pathlib import Path

from newsroom.search.archive import Archive
from newsroom.search.evaluate import evaluate_search
from newsroom.search.reader import sentence_encoder
from schemas.lake import Lake
from training.evaluation.evaluate import EvaluationReport

TREC_TAG = "multilink"  # names our rankings in files of TREC


def evaluate_archive(
    index: str, lake: Lake, split: str, settings: Sequence[str], *, output: Path | None, tracking: str | None
) -> tuple[EvaluationReport, int, str | None]:
    """Return the numbers of an index, how many texts were searched with, and the id of the run that has them.

    Args:
        index: path or URI of its folder.
        lake: holds its data set.
        split: whose texts are the queries.
        settings: `key=value` of how texts and pictures are read.
        output: folder for the table, and for `run.txt` and `qrels.txt`, which trec_eval reads; None: not written.
        tracking: MLflow's address; None: the numbers are kept with no run.

    Raises:
        UsageError: no document of the split has known links.
        NotFoundError: the split, or the model in the store, is not there.
    """
    with Archive(index, settings) as archive:
        found = evaluate_search(archive.index, lake, split, reader=archive.reader, encode=sentence_encoder())
        manifest = archive.index.manifest
    name, _, version = manifest.dataset.partition("@")
    report = EvaluationReport(
        model=manifest.model, model_version=None, dataset=name, dataset_version=version, split=split, rows=found.rows
    )
    if output is not None:
        report.write(output)
        found.write_trec(output, tag=TREC_TAG)
    if tracking is None:
        return report, len(found.queries), None
    from training.mlflow.loading import open_registry
    from training.mlflow.registering import record_search

    return report, len(found.queries), record_search(open_registry(tracking), manifest.model, report)
