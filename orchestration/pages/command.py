"""`multilink pages`: the newsroom's pages on this machine, until interrupted."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.console import Console
from training import options

PORT = 8090


def pages(
    lake: options.LakePath,
    indexes: Annotated[
        list[str] | None,
        typer.Option("--index", help="Folder that `multilink index` printed; may be given again. All of the lake's."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on. One that others reach needs --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: one that is free.")] = PORT,
    token: Annotated[
        str, typer.Option(envvar="MULTILINK_PAGES_TOKEN", help="What a visitor must show. Better in the environment.")
    ] = "",
    user_header: Annotated[
        str, typer.Option(metavar="NAME", help="Instead of a token: the header in which a reverse proxy names a user.")
    ] = "",
    store: Annotated[
        str,
        typer.Option(
            envvar="MULTILINK_PAGES_STORE",
            metavar="URL",
            help="Database of texts and decisions, such as postgresql://USER@HOST/NAME; in a local lake by default.",
        ),
    ] = "",
    settings: options.ReadingSettings = None,
    tracking: options.KnownTracking = None,
    is_json: options.Json = False,
) -> None:
    """Show the newsroom's pages: search an archive for an article, look at links and data sets.

    Serves until Ctrl-C. On loopback nobody is asked who they are; elsewhere a token or a proxy's header is required.
    """
    console = Console(is_json=is_json)
    import torch
    import uvicorn

    from orchestration.decisions.database import database_in
    from orchestration.pages.app import create_app
    from orchestration.pages.limits import MAX_CONNECTIONS
    from orchestration.pages.settings import PagesSettings
    from training.listening import TimedProtocol, bind

    chosen = PagesSettings(
        lake=lake,
        indexes=tuple(indexes or ()),
        store=store or database_in(lake),
        tracking=tracking,
        host=host,
        port=port,
        token=token,
        user_header=user_header,
        reading=tuple(settings or ()),
    )
    torch.set_num_threads(1)  # a request takes a core: 24 ms of processor time; 167 where two cores share each product
    app = create_app(chosen)
    address = bind(host, port)
    console.summarise([f"{address.url}, until Ctrl-C"], {"address": address.url})
    config = uvicorn.Config(
        app, log_level="warning", http=TimedProtocol, limit_concurrency=MAX_CONNECTIONS, server_header=False
    )
    uvicorn.Server(config).run(sockets=[address.bound])
