"""The one command, `multilink`: the tree of its commands, and a run of one, whose error is one line and a status.

0   done
1   a build, a run or a gate said no
2   the caller's mistake: an unknown option or key, a file or version that is not there

A module is imported when its command is used: help and mistakes do not wait for libraries that they do not need. What
the help says of a command is read from its source: the first line of a function's docstring, or the `help` of a group.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from schemas.console import erased
from schemas.errors import MultilinkError

COMMANDS = {  # name -> module:function, or module:group
    "build": "pipelines.cli:build",
    "datasets": "pipelines.cli:datasets_app",
    "features": "pipelines.cli:features_app",
    "lake": "pipelines.cli:lake_app",
    "train": "training.cli:train",
    "evaluate": "training.cli:evaluate",
    "examples": "training.cli:examples",
    "compare": "training.cli:compare",
    "promote": "training.cli:promote",
    "approve": "training.cli:approve",
    "promotions": "training.cli:promotions",
    "rollback": "training.cli:rollback",
    "copy": "training.cli:copy",
    "relocate": "training.cli:relocate",
    "serve": "training.cli:serve",
    "supervised": "training.cli:supervised",
    "sweep": "training.cli:sweep",
    "transfer": "training.cli:transfer",
    "settings": "orchestration.settings:settings",
    "link": "orchestration.link:link",
    "relink": "orchestration.relink:relink",
    "index": "orchestration.search:index",
    "search": "orchestration.search:search",
    "evaluate-search": "orchestration.search:evaluate_search",
    "pages": "orchestration.pages.command:pages",
    "decisions": "orchestration.decisions.commands:decisions_app",
    "demo": "orchestration.demo.demo:demo",
    "up": "orchestration.local.up:up",
}
ADDED = {  # commands of a group that are not in its module
    "datasets": {
        "provenance": "orchestration.forgetting:provenance",
        "sample": "orchestration.sample:sample",
        "what-if": "orchestration.what_if:what_if",
    },
    "lake": {"takedown": "orchestration.forgetting:takedown", "forget": "orchestration.forgetting:forget"},
}
_PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}


class Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is taken."""

    def __getitem__(self, name: str) -> Any:
        made = _command(name, COMMANDS[name])
        for other, place in ADDED.get(name, {}).items():
            made.add_command(_command(other, place))
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _command(name: str, place: str) -> Any:
    """Import the function or the group at `module:attribute`, and return it as a command of this name."""
    module, _, attribute = place.partition(":")
    found, parent = getattr(import_module(module), attribute), typer.Typer(**_PLAIN)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    return get_group(parent).commands[name]


class LazyGroup(TyperGroup):
    """A group whose help imports none of its commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]  # nothing is added to it

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line(place)) for name, place in COMMANDS.items()])


def help_line(place: str) -> str:
    """Return what a command is for, of a `module:attribute` that is not imported for it."""
    module, _, attribute = place.partition(":")
    return _help_lines(module)[attribute]


@cache
def _help_lines(module: str) -> dict[str, str]:
    """Return the first line of help of each function and each group of a module, by name."""
    spec, lines = find_spec(module), {}
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{module}: no such module here")
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name):
                lines[name] = (ast.get_docstring(node) or "").partition("\n")[0]
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(keywords=keywords)):
                lines[name] = "".join(str(ast.literal_eval(each.value)) for each in keywords if each.arg == "help")
    return lines


def _say_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"multilink {version('multilink')}")
        raise typer.Exit


app = typer.Typer(
    name="multilink",
    help="Learn which sentence of a document goes with which image, with no link ever shown in training.",
    cls=LazyGroup,
    no_args_is_help=True,
    **_PLAIN,
)


@app.callback()
def options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before a command."""


def run(
    arguments: Sequence[str], commands: typer.Typer = app, *, reporting: AbstractContextManager[None] | None = None
) -> int:
    """Run one command and return its exit status; an expected error is printed as one line on standard error.

    Args:
        arguments: of the command line.
        commands: the tree.
        reporting: open while the command runs; its errors pass through it.
    """
    try:
        with reporting or nullcontext():
            status = commands(list(arguments), prog_name="multilink", standalone_mode=False)
    except MultilinkError as problem:
        return print_error(str(problem), problem.exit_status)
    except typer.TyperException as problem:
        return print_error(problem.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        return print_error("interrupted", 130)
    return status if isinstance(status, int) else 0


def print_error(message: str, status: int) -> int:
    """Print an error in one line, and return the exit status."""
    print(erased(), end="", file=sys.stderr)
    if message.startswith("Usage:"):  # of a group without a command: its help, a page
        print(message, file=sys.stderr)
    elif message:
        print(f"multilink: {' '.join(message.split())}", file=sys.stderr)
    return status
