"""The pages are served on this machine, until interrupted."""

from collections.abc import Iterator

import uvicorn

from newsroom.pages.app import create_app
from newsroom.pages.limits import MAX_CONNECTIONS
from newsroom.pages.settings import PagesSettings
from training.listening import TimedProtocol, bind


def run_pages(settings: PagesSettings) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield where the pages are, in lines and in values, and then serve them until interrupted.

    Raises:
        UsageError: the address cannot be had, or the settings do not fit together.
    """
    app = create_app(settings)
    address = bind(settings.host, settings.port)
    yield [f"{address.url}, until Ctrl-C"], {"address": address.url}
    config = uvicorn.Config(
        app,
        log_level="warning",
        http=TimedProtocol,
        limit_concurrency=MAX_CONNECTIONS,
        server_header=False,
        root_path=settings.root_path,
    )
    uvicorn.Server(config).run(sockets=[address.bound])
