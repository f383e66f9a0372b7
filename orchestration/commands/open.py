import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestration.commands import options
from schemas.errors import NotFoundError

FILES = {"report": "report/index.html", "links": "linked/index.html"}


def command(
    lake: options.LakePath,
    what: Annotated[Literal["report", "links"], typer.Argument(help="The report, or the drawn links.")] = "report",
) -> options.Summaries:
    """Open what the demo drew in the browser of a screen, and print where it is. The pages: `multilink pages`."""
    path = Path(lake).absolute().parent / FILES[what]
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file; multilink demo makes it")
    if sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        webbrowser.open(path.as_uri())
    yield [path.as_uri()], {what: path.as_uri()}
