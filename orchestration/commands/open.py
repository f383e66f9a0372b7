import os
import socket
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestration.commands import options
from schemas.errors import NotFoundError

LOOPBACK, PAGES = "127.0.0.1", "pages"
_FILES = {"report": "report/index.html", "links": "linked/index.html"}


def command(
    lake: options.LakePath,
    what: Annotated[
        Literal["demo", "report", "links", "pages"],
        typer.Argument(help="The report, the drawn links, the pages, or all of them (demo)."),
    ] = "demo",
    port: options.PagesPort = options.PAGES_PORT,
    tracking: options.KnownTracking = None,
) -> options.Summaries:
    """Open what the demo made (its report, links and pages) in the browser, or print where it is.

    The pages are served until Ctrl-C, unless another process serves them already.
    """
    wanted = [*_FILES, PAGES] if what == "demo" else [what]
    home = Path(lake).absolute().parent
    addresses = {name: _existing(home / _FILES[name]).as_uri() for name in wanted if name in _FILES}
    if PAGES in wanted and not _listens(port):
        from newsroom.decisions.database import database_in
        from newsroom.pages.serving import run_pages
        from newsroom.pages.settings import PagesSettings

        for lines, values in run_pages(PagesSettings(lake=lake, store=database_in(lake), tracking=tracking, port=port)):
            addresses[PAGES] = values["address"]
            yield [*_opened(addresses), *lines], addresses
        return
    if PAGES in wanted:
        addresses[PAGES] = f"http://{LOOPBACK}:{port}"
    yield _opened(addresses), addresses


def _opened(addresses: Mapping[str, str]) -> list[str]:
    """Open addresses in the browser of a screen, if there is one, and return them as lines."""
    if sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        for address in addresses.values():
            webbrowser.open(address)
    return [f"{name:8}{address}" for name, address in addresses.items()]


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file; multilink demo makes it")
    return path


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
