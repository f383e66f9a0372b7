"""The links of the documents of a JSON Lines file, which the pipeline's extractors read."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchestration.inference.extraction import DocumentReader
from pipelines.config import recipe
from pipelines.sources.datasets.documents import read_documents
from schemas.console import Say
from schemas.lake import Folder
from schemas.overrides import override
from training.linking.options import DEFAULT_OPTIONS, LinkOptions
from training.mlflow.loading import open_model
from training.workflows.link import LinkSummary, run_link


def link_file(
    model: str,
    source: Path,
    output: Path,
    settings: Sequence[str] = (),
    *,
    options: LinkOptions = DEFAULT_OPTIONS,
    page: Path | None = None,
    tracking: str | None = None,
    say: Say,
) -> LinkSummary:
    """Link the documents of a JSON Lines file; arguments and files as of `run_link`.

    Raises:
        UsageError: the model is not there, reads features that no extractor here makes, or cannot link with these
            options.
    """
    loaded, config = open_model(model, tracking), override(recipe("documents"), settings)
    say(f"linking {source} with {loaded.uri}")
    with tempfile.TemporaryDirectory(prefix="multilink-link-") as scratch:
        reader = DocumentReader(loaded.model.card, config, Folder(scratch), with_pictures=page is not None)
        documents = reader.read(read_documents(source), files=str(source.absolute().parent))
        return run_link(loaded=loaded, documents=documents, output=output, options=options, page=page, say=say)
