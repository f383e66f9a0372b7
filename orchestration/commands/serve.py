from typing import Annotated

import typer

from orchestration.commands import options


def command(
    model: Annotated[str, typer.Option(help=f"{options.ADDRESSES}.")],
    host: Annotated[str, typer.Option(help="Address to listen on; whoever can reach it is served.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.")] = 5050,
    links: options.Links = options.link_options,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Answer documents with their links over HTTP, until interrupted.

    A request has documents as the model reads them: sentences, and vectors of the extractors that it was trained with,
    or pictures. `multilink link --input` reads raw documents.
    """
    from training.mlflow.serving import run_serve

    yield from run_serve(model=model, host=host, port=port, options=links(), tracking=tracking)
