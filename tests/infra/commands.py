"""Command lines as the programs' own parsers read them: a word that no program knows is found without starting it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dagster._cli import create_dagster_cli
from dagster._daemon.cli import create_dagster_daemon_cli
from dagster_webserver.cli import create_dagster_webserver_cli
from mlflow.cli import cli as mlflow_cli
from typer.main import get_command

from orchestration.cli import app


def ray_cli() -> Any:
    from ray.scripts.scripts import cli

    return cli


PROGRAMS: dict[str, Callable[[], Any]] = {
    "multilink": lambda: get_command(app),
    "dagster": create_dagster_cli,
    "dagster-daemon": create_dagster_daemon_cli,
    "dagster-webserver": create_dagster_webserver_cli,
    "mlflow": lambda: mlflow_cli,
    "ray": ray_cli,
}


def parse(command: list[str]) -> list[str]:
    """Parse a command line with the program's own parser and return what is left: the arguments of its last command.

    Raises:
        Exception: of the parser's kind, for a word it does not know.
    """
    program, *arguments = command
    parser, context = PROGRAMS[program](), None
    name = program
    while True:
        context = parser.make_context(name, list(arguments), parent=context)
        if not hasattr(parser, "resolve_command"):
            return list(context.args)
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, parser, arguments = parser.resolve_command(context, rest)
