"""Command lines as the programs' own parsers read them: a word that no program knows is found without starting it.

A program is imported when it is asked for: all of them take seconds, in every process that shares the tests.
"""

from pkgutil import resolve_name
from typing import Any

PROGRAMS = {
    "multilink": "orchestration.cli:app",
    "dagster": "dagster._cli:create_dagster_cli",
    "dagster-daemon": "dagster._daemon.cli:create_dagster_daemon_cli",
    "dagster-webserver": "dagster_webserver.cli:create_dagster_webserver_cli",
    "mlflow": "mlflow.cli:cli",
    "ray": "ray.scripts.scripts:cli",
}


def parser_of(program: str) -> Any:
    """Return the program's own parser: a command, a function that makes one, or an application of Typer."""
    from typer import Typer
    from typer.main import get_command

    found = resolve_name(PROGRAMS[program])
    if isinstance(found, Typer):
        return get_command(found)
    return found if hasattr(found, "make_context") else found()


def parse(command: list[str]) -> Any:
    """Parse a command line with the program's own parser and return the context of its last command.

    Raises:
        Exception: of the parser's kind, for a word it does not know.
    """
    program, *arguments = command
    parser, context = parser_of(program), None
    name = program
    while True:
        context = parser.make_context(name, list(arguments), parent=context)
        if not hasattr(parser, "resolve_command"):
            return context
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, parser, arguments = parser.resolve_command(context, rest)
