from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options


def command(
    workspace: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that demo or up has made.")],
    *,
    say: options.Progress,
) -> options.Summaries:
    """Let the commands in this folder use another workspace: multilink.toml names it from now on."""
    from orchestration.project import use
    from schemas.project import FILE

    values = use(workspace, Path.cwd(), say=say)
    yield [f"{FILE} names {workspace}", *(f"  {name} = {value}" for name, value in values.items())], values
