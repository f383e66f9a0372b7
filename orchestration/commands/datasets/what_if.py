from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options
from schemas.errors import UsageError


def command(
    version: options.Version,
    settings: options.Settings = None,
    examples: Annotated[
        int, typer.Option(min=1, max=100, help="Number of documents to draw for each reason, at most.")
    ] = 6,
    output: options.HtmlFile = Path("what-if.html"),
) -> options.Summaries:
    """Show what other thresholds (`quality.*`, `documents.*`) would drop of a version, with pictures."""
    if not settings:
        raise UsageError("what-if: expected --set KEY=VALUE, such as --set quality.min_sharpness=100")
    from orchestration.workflows.document_pages import what_if_page

    _, manifest, folder = version()
    yield options.with_page(what_if_page(manifest, folder, settings, examples=examples), output)
