"""Linking raw documents: the pipeline's own steps turn a user's file into vectors, a model turns those into links.

Both halves meet here, because extraction is `pipelines`' and models are `training`'s.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow.parquet as pq
import typer

from schemas.console import Console
from schemas.errors import UsageError
from schemas.failures import FAILURE_SCHEMA, Failure, failure_row
from schemas.lake import Folder
from schemas.tables import to_table

if TYPE_CHECKING:
    from pipelines.plain import VectorDocument
    from training.linking.links import LinkInput

Say = Callable[[str], None]


def link(
    model: Annotated[str, typer.Option(help="models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model or a folder.")],
    input_path: Annotated[str, typer.Option("--input", help="Documents as JSON Lines, with image paths or URLs.")],
    output: Annotated[str, typer.Option(help="Parquet file of links to write.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting (http.*, images.*).")
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Only the links of which this share is to be true, such as 0.9.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Calibration of the model; its run's by default.")
    ] = None,
    tracking: Annotated[str | None, typer.Option("--tracking-uri", help="MLflow's address.")] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")] = False,
) -> None:
    """Predict the links of a user's own documents with a trained model.

    Documents and images that cannot be used become rows of OUTPUT's neighbour, `<name>.failures.parquet`.
    """
    console = Console(is_json=is_json)
    summary = link_file(
        model,
        Path(input_path),
        Path(output),
        settings or [],
        precision=precision,
        calibration_path=calibration,
        tracking=tracking,
        say=console.say,
    )
    lines = [f"{summary['links']} links of {summary['documents']} documents: {summary['output']}"]
    if summary["failures"]:
        reasons = ", ".join(f"{reason} {count}" for reason, count in summary["failures"].items())
        lines.append(f"failures: {reasons}: {summary['failures_path']}")
    console.summarise(lines, summary)


def link_file(
    model: str,
    source: Path,
    output: Path,
    settings: list[str],
    *,
    precision: float | None = None,
    calibration_path: Path | None = None,
    tracking: str | None,
    say: Say,
) -> dict[str, Any]:
    """Link the documents of a JSON Lines file, write links and failures, and return the summary.

    Raises:
        UsageError: the file or the model is not there, the model reads vectors that no extractor here makes, or the
            precision is wanted of a model without calibration.
    """
    if not source.is_file():
        raise UsageError(f"--input {source}: no such file")
    from pipelines.features.extractors import (
        image_extractor,
        image_extractor_names,
        sentence_extractor,
        sentence_extractor_names,
    )
    from pipelines.plain import read_vectors
    from training.commands import run_link
    from training.registry.evaluations import calibration_of
    from training.registry.loading import load
    from training.tracking import open_tracking

    client = open_tracking(tracking)
    loaded = load(model, client)
    calibration = calibration_of(client, loaded, calibration_path)
    data = loaded.model.card.data
    _require(data.image_features, image_extractor_names())
    if data.sentence_features is not None:
        _require(data.sentence_features, sentence_extractor_names())
    say(f"linking {source} with {loaded.uri}")
    images = image_extractor(data.image_features, threads=os.cpu_count() or 1)
    sentences = sentence_extractor(data.sentence_features) if data.sentence_features else None
    with tempfile.TemporaryDirectory(prefix="multilink-link-") as scratch:
        failures: list[Failure] = []
        found = read_vectors(source, settings, Folder(scratch), images, sentences)
        summary = run_link(
            loaded=loaded,
            documents=_inputs(found, failures),
            output=str(output),
            calibration=calibration,
            precision=precision,
            say=say,
        )
    failures_path = output.with_suffix(".failures.parquet")
    return summary.to_json() | {
        "failures": _write_failures(failures, failures_path),
        "failures_path": str(failures_path),
    }


def _require(name: str, known: list[str]) -> None:
    if name not in known:
        raise UsageError(
            f"the model reads '{name}' vectors, which cannot be made from raw documents here; "
            f"extractors: {', '.join(known)}"
        )


def _inputs(found: Iterable[VectorDocument | Failure], failures: list[Failure]) -> Iterator[LinkInput]:
    """Yield what can be linked; what cannot goes to `failures`."""
    from training.linking.links import LinkInput
    from training.model import DocumentInput

    for item in found:
        if isinstance(item, Failure):
            failures.append(item)
            continue
        texts = [sentence.text for sentence in item.document.sentences]
        document = DocumentInput(texts=texts, sentence_vectors=item.sentence_vectors, image_vectors=item.image_vectors)
        yield LinkInput(item.document.id, document)


def _write_failures(failures: Sequence[Failure], path: Path) -> dict[str, int]:
    """Write the failure rows, if there are any, and return how many there are of each reason."""
    path.unlink(missing_ok=True)
    if failures:
        pq.write_table(to_table(map(failure_row, failures), FAILURE_SCHEMA), path)
    return dict(Counter(str(failure.reason) for failure in failures))
