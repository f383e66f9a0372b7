import os
from typing import Annotated

import typer

from orchestration.commands import options


def command(
    lake: options.LakePath,
    indexes: Annotated[
        list[str] | None,
        typer.Option(
            "--index", help="Folder that `multilink index` printed; may be repeated. All of the lake's by default."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others can reach needs --token.")
    ] = "127.0.0.1",
    port: options.PagesPort = options.PAGES_PORT,
    token: Annotated[
        str,
        typer.Option(envvar="MULTILINK_PAGES_TOKEN", help="Token that visitors must enter; safer in the environment."),
    ] = "",
    user_header: Annotated[
        str, typer.Option(metavar="NAME", help="Instead of a token: the header in which a reverse proxy names a user.")
    ] = "",
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path below which a reverse proxy shows the pages, such as /newsroom.")
    ] = "",
    processes: Annotated[int, typer.Option(min=1, help="Searches at once, each in a process of 150 to 500 MB.")] = min(
        2, os.cpu_count() or 1
    ),
    keep_days: Annotated[
        int, typer.Option(min=0, help="Days after which uploads and texts without a decision are removed; 0: never.")
    ] = options.KEEP_DAYS,
    store: options.Store = "",
    settings: options.ReadingSettings = None,
    tracking: options.KnownTracking = None,
) -> options.Summaries:
    """Show the newsroom's pages: search an archive for an article, look at links and data sets.

    Serves until Ctrl-C. On loopback no login is required; elsewhere a token or a proxy's header is.
    """
    from newsroom.decisions.database import database_in
    from newsroom.pages.serving import run_pages
    from newsroom.pages.settings import PagesSettings

    yield from run_pages(
        PagesSettings(
            lake=lake,
            indexes=tuple(indexes or ()),
            store=store or database_in(lake),
            tracking=tracking,
            host=host,
            port=port,
            token=token,
            user_header=user_header,
            root_path=root_path,
            processes=processes,
            keep_days=keep_days,
            reading=tuple(settings or ()),
        )
    )
