"""The one command, `multilink`: the tree of its commands, and a run of one, whose error is one line and a status.

0   done
1   a build, a run or a gate said no
2   the caller's mistake: an unknown option or key, a file or version that is not there

A command's module is imported when the command is used: help and mistakes do not wait for libraries that they do not
need. What the help says of a command is the first line of its docstring, read from its source.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from schemas.console import Console, erased
from schemas.errors import MultilinkError

# Group -> its commands in the order of the help; "": of none. In `commands/`, a command is a file, a group a folder.
TREE = {
    "": (
        *("build", "datasets", "features", "lake"),
        *("train", "evaluate", "examples", "compare", "promote", "approve", "promotions", "rollback", "copy"),
        *("relocate", "serve", "supervised", "sweep", "transfer", "settings"),
        *("link", "relink", "index", "search", "evaluate-search", "pages", "decisions", "demo", "up"),
    ),
    "datasets": (
        *("list", "show", "verify", "diff", "failures", "duplicates", "export", "replicate", "subset"),
        *("provenance", "sample", "what-if"),
    ),
    "features": ("list", "bench"),
    "lake": ("sweep", "takedown", "forget"),
    "decisions": ("list", "export", "compare"),
}
_PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
_JSON = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")]


class Commands(Mapping[str, Any]):
    """The commands of a group by name, each imported when it is taken."""

    def __init__(self, group: str) -> None:
        self._group = group

    def __getitem__(self, name: str) -> Any:
        if name not in TREE[self._group]:
            raise KeyError(name)
        if name in TREE:
            return get_group(
                typer.Typer(name=name, cls=LazyGroup, help=help_line(name), no_args_is_help=True, **_PLAIN)
            )
        module = ".".join(filter(None, ("orchestration.commands", self._group, name.replace("-", "_"))))
        parent = typer.Typer(**_PLAIN)
        parent.command(name)(_printing(import_module(module).command))
        return get_group(parent).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(TREE[self._group])

    def __len__(self) -> int:
        return len(TREE[self._group])


class LazyGroup(TyperGroup):
    """A group whose help imports none of its commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands(str(self.name) if self.name in TREE else "")  # type: ignore[assignment]  # none is added

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        group = self.name if self.name in TREE else ""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line(f"{group} {name}")) for name in self.commands])


def help_line(path: str) -> str:
    """Return what the command or the group of a path (`datasets show`) is for; it is read, and not imported."""
    place = Path(__file__).parent.joinpath("commands", *path.replace("-", "_").split())
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    found: ast.Module | ast.FunctionDef = ast.parse(source.read_text(encoding="utf-8"))
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == "command":
            found = node
    return (ast.get_docstring(found) or "").partition("\n")[0]


def _printing(command: Callable[..., Generator[tuple[Iterable[str], Mapping[str, Any]]]]) -> Callable[..., None]:
    """Return a command that has `--json`, too, and prints each summary that it yields."""
    signature = inspect.signature(command, eval_str=True)

    @wraps(command)
    def printing(*, is_json: bool, **given: Any) -> None:
        console = Console(is_json=is_json)
        with closing(command(**given)) as summaries:
            for lines, values in summaries:
                console.summarise(lines, values)

    last = inspect.Parameter("is_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_JSON)
    printing.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), last], return_annotation=None
    )
    return printing


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
