"""The links of the documents of a JSON Lines file, which the pipeline's extractors read."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from orchestration.inference.extraction import extraction_for, given_documents
from pipelines.config import recipe
from pipelines.documents_for_linking import read_vectors
from pipelines.sources.jsonl import read_documents
from schemas.configs import override
from schemas.console import Say
from schemas.failures import FAILURE_SCHEMA, Failure
from schemas.lake import Folder
from schemas.tables import row_of, to_table
from training.metrics.relations import RefineConfig
from training.mlflow.registry import calibration_of, load, open_registry
from training.workflows.link import run_link


def link_file(
    model: str,
    source: Path,
    output: Path,
    settings: list[str],
    *,
    page: Path | None = None,
    precision: float | None = None,
    refine: RefineConfig | None = None,
    calibration_path: Path | None = None,
    tracking: str | None,
    say: Say,
) -> dict[str, Any]:
    """Link the documents of a JSON Lines file, write links, failures and a page, and return the summary.

    Raises:
        UsageError: the model is not there, the model reads vectors that no extractor here makes, or the
            precision is wanted of a model without calibration.
    """
    loaded = load(model, open_registry(tracking, [model]))
    calibration = calibration_of(loaded, calibration_path)
    say(f"linking {source} with {loaded.uri}")
    with tempfile.TemporaryDirectory(prefix="multilink-link-") as scratch:
        failures: list[Failure] = []
        found = read_vectors(
            read_documents(source),
            override(recipe("documents"), settings),
            files=str(source.absolute().parent),
            scratch=Folder(scratch),
            extraction=extraction_for(loaded.model.card, settings, Folder(scratch), is_drawn=page is not None),
        )
        summary = run_link(
            loaded=loaded,
            documents=given_documents(found, failures),
            output=str(output),
            calibration=calibration,
            precision=precision,
            refine=refine,
            page=page,
            say=say,
        )
    failures += summary.failures
    path = output.with_suffix(".failures.parquet")
    path.unlink(missing_ok=True)
    if failures:
        pq.write_table(to_table(map(row_of, failures), FAILURE_SCHEMA), path)
    reasons = Counter(str(failure.reason) for failure in failures)
    return summary.to_json() | {"failures": dict(reasons), "failures_path": str(path)}
