"""What a training run leaves for a person to read: its model judged, as a table, a page and scores on its card.

Made once the model is registered, from what is in the registry and the lake alone, so that it can be made later, too:
`multilink evaluate --report` does the same for any model and any split.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.manifest import Manifest, read_manifest
from training.commands import EvaluateSummary, run_evaluate
from training.reporting import run_report
from training.tracked_training import TrainSummary

JUDGED_SPLITS = (Split.TEST, Split.VAL)


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
    for split in JUDGED_SPLITS:
        statistics = manifest.splits.get(split)
        if statistics is not None and statistics.links:
            return split
    return None
