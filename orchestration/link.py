"""Linking raw documents: the pipeline's own steps turn a user's file into vectors, a trained model turns those into links.

Both halves meet here, because extraction is `pipelines`' and models are `training`'s.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.console import Console
from schemas.errors import UsageError

DOCUMENTS_AT_ONCE = 64
Say = Callable[[str], None]


def link(
    model: Annotated[str, typer.Option(help="models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model or a folder.")],
    input_path: Annotated[str, typer.Option("--input", help="Documents as JSON Lines, with image paths or URLs.")],
    output: Annotated[str, typer.Option(help="Parquet file of links to write.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting (http.*, images.*).")
    ] = None,
    tracking: Annotated[str | None, typer.Option("--tracking-uri", help="MLflow's address.")] = None,
    is_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")] = False,
) -> None:
    """Predict the links of a user's own documents with a trained model.

    Documents and images that cannot be used become rows of OUTPUT's neighbour, `<name>.failures.parquet`.
    """
    console = Console(is_json=is_json)
    summary = link_file(model, Path(input_path), Path(output), settings or [], tracking=tracking, say=console.say)
    lines = [f"{summary['links']} links of {summary['documents']} documents: {summary['output']}"]
    if summary["failures"]:
        reasons = ", ".join(f"{reason} {count}" for reason, count in summary["failures"].items())
        lines.append(f"failures: {reasons}: {summary['failures_path']}")
    console.summarise(lines, summary)


def link_file(
    model: str, source: Path, output: Path, settings: list[str], *, tracking: str | None, say: Say
) -> dict[str, Any]:
    """Link the documents of a JSON Lines file, write links and failures, and return the summary.

    Raises:
        UsageError: the file or the model is not there, or the model reads vectors that no extractor here makes.
    """
    if not source.is_file():
        raise UsageError(f"--input {source}: no such file")
    from pipelines.features.extractors import (
        image_extractor,
        image_extractor_names,
        sentence_extractor,
        sentence_extractor_names,
    )
    from training.commands import run_link
    from training.registry.loading import load
    from training.tracking import open_tracking

    loaded = load(model, open_tracking(tracking))
    data = loaded.model.card.data
    _require(data.image_features, image_extractor_names())
    if data.sentence_features is not None:
        _require(data.sentence_features, sentence_extractor_names())
    say(f"linking {source} with {loaded.uri}")
    images = image_extractor(data.image_features, threads=2)
    sentences = sentence_extractor(data.sentence_features) if data.sentence_features else None
    with tempfile.TemporaryDirectory(prefix="multilink-link-") as scratch:
        reading = _Reading(source, settings, scratch, images, sentences)
        summary = run_link(loaded=loaded, documents=reading.inputs(), output=str(output), say=say)
    failures_path = output.with_suffix(".failures.parquet")
    return summary.to_json() | {
        "failures": reading.write_failures(failures_path),
        "failures_path": str(failures_path),
    }


def _require(name: str, known: list[str]) -> None:
    if name not in known:
        raise UsageError(
            f"the model reads '{name}' vectors, which cannot be made from raw documents here; "
            f"extractors: {', '.join(known)}"
        )


@dataclass(slots=True)
class _Reading:
    """Documents on their way from a file to a model; what fails is kept aside."""

    source: Path
    settings: list[str]
    scratch: str
    images: Any
    sentences: Any
    failures: list[Any] | None = None

    def inputs(self) -> Iterator[Any]:
        """Yield a `LinkInput` of every document that can be linked."""
        from pipelines.images.obtain import ImagePlaces
        from pipelines.images.store import ImageStore
        from pipelines.plain import add_vectors, documents_of
        from pipelines.recipes import recipe
        from pipelines.sources.jsonl import read_documents
        from schemas.configs import override
        from schemas.failures import Failure
        from schemas.lake import Folder
        from training.linking.links import LinkInput
        from training.model import DocumentInput

        config = override(recipe("documents"), [f"source.documents={self.source}", *self.settings])
        scratch = Folder(self.scratch)
        places = ImagePlaces(
            http=config.http,
            raw=scratch.child("raw"),
            store=ImageStore(scratch.child("images")),
            files=str(self.source.absolute().parent),
        )
        self.failures = []
        found = documents_of(read_documents(self.source), config, places)
        while batch := list(islice(found, DOCUMENTS_AT_ONCE)):
            self.failures += [item for item in batch if isinstance(item, Failure)]
            documents = [item for item in batch if not isinstance(item, Failure)]
            for item in add_vectors(documents, places, self.images, self.sentences) if documents else ():
                texts = [sentence.text for sentence in item.document.sentences]
                document = DocumentInput(
                    texts=texts, sentence_vectors=item.sentence_vectors, image_vectors=item.image_vectors
                )
                yield LinkInput(item.document.id, document)

    def write_failures(self, path: Path) -> dict[str, int]:
        """Write the failure rows, if there are any, and return how many there are of each reason."""
        import pyarrow.parquet as pq

        from schemas.failures import FAILURE_SCHEMA, failure_row
        from schemas.tables import to_table

        failures = self.failures or []
        if failures:
            pq.write_table(to_table(map(failure_row, failures), FAILURE_SCHEMA), path)
        counts: dict[str, int] = {}
        for failure in failures:
            counts[str(failure.reason)] = counts.get(str(failure.reason), 0) + 1
        return counts
