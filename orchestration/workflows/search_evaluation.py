"""How well the texts of a split find their pictures in an index, kept in files."""

from collections.abc import Sequence
from pathlib import Path

from newsroom.search.archive import Archive
from newsroom.search.evaluate import evaluate_search
from schemas.lake import Lake
from training.evaluation.evaluate import EvaluationReport


def evaluate_archive(
    index: str, lake: Lake, split: str, settings: Sequence[str], *, output: Path | None
) -> tuple[EvaluationReport, int]:
    """Return the numbers of an index, and how many texts were searched with.

    Args:
        index: path or URI of its folder.
        lake: holds its data set.
        split: whose texts are the queries.
        settings: `key=value` of how texts and pictures are read.
        output: folder for the table; None: not written.

    Raises:
        UsageError: no document of the split has known links.
        NotFoundError: the split is not there.
    """
    with Archive(index, settings) as archive:
        rows, count = evaluate_search(archive.index, lake, split, reader=archive.reader)
        manifest = archive.index.manifest
    name, _, version = manifest.dataset.partition("@")
    report = EvaluationReport(
        model=manifest.model, model_version=None, dataset=name, dataset_version=version, split=split, rows=tuple(rows)
    )
    if output is not None:
        report.write(output)
    return report, count
