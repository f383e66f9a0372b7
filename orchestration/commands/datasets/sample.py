from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.documents import Split


def command(
    version: options.Version,
    documents: Annotated[int, typer.Option(min=1, max=1000, help="Number of documents at most.")] = 12,
    split: Annotated[
        str | None, typer.Option(callback=options.known_split, help="train, val or test; all by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other documents.")] = 0,
    output: options.HtmlFile = Path("sample.html"),
) -> options.Summaries:
    """Write a page of a random sample of a version: sentences, pictures and known links."""
    from orchestration.workflows.document_pages import sample_page

    _, manifest, folder = version()
    splits = tuple(Split) if split is None else (Split(split),)
    yield options.with_page(sample_page(manifest, folder, count=documents, seed=seed, splits=splits), output)
