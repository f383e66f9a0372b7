from typing import Annotated

import typer

from orchestration.commands import options
from schemas.lake import Lake


def command(
    reference: options.References,
    document: Annotated[str, typer.Argument(help="Id of the document.")],
    lake: options.LakePath,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Show all that is known about a document: addresses, responses, rights, extractors, links, indexes, models."""
    import yaml

    from orchestration.workflows.takedowns import models_of
    from pipelines.forgetting.provenance import provenance

    known = provenance(Lake.at(lake), reference, document)
    for each in known["versions"]:
        each["models"] = models_of(tracking, known["dataset"], each["version"])
    yield yaml.safe_dump(known, allow_unicode=True, sort_keys=False, width=120).splitlines(), known
