from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.commands.lake.takedown import models_of
from schemas.lake import Lake


def command(
    reference: options.References,
    document: Annotated[str, typer.Argument(help="Id of the document.")],
    lake: options.LakePath,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Tell everything known of a document: addresses, answers, rights, what it was made with and went into."""
    from pipelines.forgetting.provenance import provenance, provenance_lines

    known = provenance(Lake.at(lake), reference, document)
    for held in known["versions"]:
        held["models"] = models_of(tracking, known["dataset"], held["version"])
    yield provenance_lines(known), known
