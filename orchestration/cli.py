"""The one command, `multilink`: the tree of its commands, and a run of one, whose error is one line and a status.

0   done
1   a build or a run failed, or a gate refused
2   the caller's mistake: an unknown option or key, a file or version that is not there
130 stopped, by Ctrl-C or SIGTERM

A command's module is imported when the command is used: help and mistakes do not wait for libraries that they do not
need. The help's line of a command is the first line of its docstring, read from its source.
"""

import ast
import errno
import inspect
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from orchestration.console import Console, erased
from orchestration.interrupts import INTERRUPTS, STOPPED
from schemas.messages import MultilinkError, without_passwords
from schemas.versions import code_version
from training.project import FILE

# What is done -> the commands for it, in the order of the help.
SECTIONS = {
    "All of it": ("demo", "open", "up"),
    "Data sets": ("build", "datasets", "lake"),
    "Models": ("train", "evaluate", "compare", "sweep", "transfer", "settings"),
    "Promotion": ("promote", "approve", "rollback", "promotions", "verify", "key", "copy", "relocate"),
    "Links": ("link", "relink", "label", "measure", "serve"),
    "Archives": ("index", "search", "evaluate-search", "pages", "decisions"),
}
# Group -> its commands; "": of none.
TREE = {
    "": tuple(name for names in SECTIONS.values() for name in names),
    "datasets": ("list", "show", "verify", "diff", "overlap", "failures", "export", "replicate", "subset", "delete"),
    "lake": ("sweep", "takedown", "forget"),
    "decisions": ("list", "export", "compare"),
}
# File of `commands/` -> its commands, beside a file for each group and for each other command.
FILES = {
    "workspaces": ("demo", "open", "up"),
    "models": ("compare", "evaluate", "sweep", "train", "transfer"),
    "datasets": ("build",),
    "links": ("label", "link", "measure", "relink", "serve"),
    "archives": ("evaluate_search", "index", "pages", "search"),
    "registry": ("approve", "copy", "key", "promote", "promotions", "relocate", "rollback", "verify"),
}
_OF_MLFLOW = ("mlflow.", "sqlalchemy.", "alembic.")  # whose errors a command does not explain itself
_MLFLOW_HINT = (
    "completed work is kept: correct the cause and run the command again; a training continues with --resume RUN"
)
_GOES_ON = {
    **dict.fromkeys(("build", "demo", "link", "relink", "index", "lake", "sweep"), "; the same command continues"),
    "train": "; the same command with --reuse continues",
}
# Of paths that cannot be read or written: read-only, full, of somebody else, of another kind than expected, not there.
_OF_PATHS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
}
_OF_OTHER_TOOLS = {  # that train: what an option of theirs is here
    **dict.fromkeys(("--device", "--cuda", "--gpu", "--gpus"), "--set training.device=cuda; auto by default"),
    **dict.fromkeys(("--num-workers", "--nproc", "--jobs"), "--workers"),
    **dict.fromkeys(("--lr", "--learning-rate"), "--set training.learning_rate=0.001"),
    "--batch-size": "--set training.negative_documents=31, the documents beside one's own",
    "--config": "--recipe NAME, and --set KEY=VALUE",
    "--epochs": "--set training.epochs=10",
    "--seed": "--set training.seed=1",
}
_SUMMARISED = threading.Event()  # standard output has a summary
_PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
_OF_GROUP = _PLAIN | {"add_completion": False}
_JSON = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, as the last line.")]


class LazyGroup(TyperGroup):
    """A group of the tree: a command is imported when it is used, and help imports none."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._path = f"{self.name} " if self.name in TREE else ""
        self.commands = dict.fromkeys(TREE[self._path.strip()])  # type: ignore[assignment]  # their names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None of another name."""
        if cmd_name not in self.commands:
            return None
        if cmd_name in TREE:
            settings = {"help": help_line(cmd_name), "no_args_is_help": True, **_OF_GROUP}
            return get_group(typer.Typer(name=cmd_name, cls=LazyGroup, **settings))
        file, function = where_is(self._path + cmd_name)
        parent = typer.Typer(**_OF_GROUP)
        parent.command(cmd_name)(_printing(getattr(import_module(f"orchestration.commands.{file}"), function)))
        return get_group(parent).commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in ({"Commands": tuple(self.commands)} if self._path else SECTIONS).items():
            with formatter.section(title):
                formatter.write_dl([(name, help_line(self._path + name)) for name in names])


def where_is(path: str) -> tuple[str, str]:
    """Return the file and the function of a command by its path (`datasets show`); a group's function is empty."""
    first, _, second = path.replace("-", "_").partition(" ")
    if path in TREE:
        return first, ""
    file = first if second else next((file for file, names in FILES.items() if first in names), first)
    return file, f"{second or first}_command"


def help_line(path: str) -> str:
    """Return what the command or the group of a path is for; it is read, and not imported."""
    file, function = where_is(path)
    source = Path(__file__).parent.joinpath("commands", f"{file}.py").read_text(encoding="utf-8")
    found: ast.Module | ast.FunctionDef = ast.parse(source)
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            found = node
    return (ast.get_docstring(found) or "").partition("\n")[0]


@dataclass(frozen=True, slots=True)
class SharedOptions:
    """Options that several commands share: the parameters of `make`, which a command calls once they are known."""

    make: Callable[..., Any]


def _printing(command: Callable[..., Generator[tuple[Iterable[str], Any]]]) -> Callable[..., None]:
    """Return a command with `--json`, too, that prints each summary that it yields; `say` prints a line of progress."""
    parameters: list[inspect.Parameter] = []
    groups, own = {}, inspect.signature(command, eval_str=True).parameters
    for each in own.values():
        match getattr(each.annotation, "__metadata__", ()):
            case [SharedOptions(make)]:
                groups[each.name] = make, inspect.signature(make).parameters
                parameters += inspect.signature(make).parameters.values()
            case _ if each.name != "say":
                parameters.append(each)

    def printing(*, is_json: bool, **given: Any) -> None:
        console = Console(is_json=is_json)
        for name, (make, names) in groups.items():
            given[name] = partial(make, **{each: given.pop(each) for each in names})
        if "say" in own:
            given["say"] = console.say
        with closing(command(**given)) as summaries:
            for lines, values in summaries:
                console.summarise(lines, values)
                _SUMMARISED.set()

    parameters.append(inspect.Parameter("is_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_JSON))
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    printing.__doc__ = command.__doc__
    printing.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    return printing


def _print_version(*, is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"multilink {code_version()}")
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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Read the options that stand before a command."""


def run(arguments: Sequence[str], commands: Callable[..., object] = app) -> int:
    """Run one command and return its exit status; an expected error is printed on standard error.

    With `--json` among the arguments it is the last line of standard output, too, unless a summary is: a refusal of the
    gate is one.

    Args:
        arguments: of the command line.
        commands: the tree, or what is done in its place.
    """
    INTERRUPTS.clear()
    _SUMMARISED.clear()
    try:
        status = commands(list(arguments), prog_name="multilink", standalone_mode=False)
        if status == STOPPED:
            raise KeyboardInterrupt
    except (Exception, KeyboardInterrupt) as problem:
        message, status = _explained(problem, arguments)
        if "--json" in arguments and not _SUMMARISED.is_set():
            Console(is_json=True).summarise((), {"error": message, "exit_status": status})
        if message is None:
            raise
        return print_error(message, status)
    return status if isinstance(status, int) else 0


def _explained(problem: BaseException, arguments: Sequence[str]) -> tuple[str | None, int]:
    """Return what to say of the error that ended a command, and the exit status; None of a fault of this program."""
    if INTERRUPTS or isinstance(problem, KeyboardInterrupt | typer.Abort):  # whatever a library made of it
        name = next((each for each in arguments if not each.startswith("-")), "")
        return f"stopped{_GOES_ON.get(name, '')}", STOPPED
    if isinstance(problem, MultilinkError):
        return str(problem), problem.exit_status
    if isinstance(problem, typer.TyperException):
        message, option = problem.format_message(), getattr(problem, "option_name", "")
        if option in _OF_OTHER_TOOLS and not {"train", "sweep"}.isdisjoint(arguments):
            message = f"No such option: {option}; here it is {_OF_OTHER_TOOLS[option]}"
        is_of_lake = message.startswith("Missing option '--lake'")
        hint = f" Name it, or call the command in a folder with a {FILE}; demo and up write one." if is_of_lake else ""
        return message + hint, 2
    if isinstance(problem, OSError) and problem.errno in _OF_PATHS:
        return str(problem).partition("] ")[2] or str(problem), 2
    if type(problem).__module__.startswith(_OF_MLFLOW):
        return f"MLflow: {str(problem).splitlines()[0]}; {_MLFLOW_HINT}", 1
    return None, 1


def print_error(message: str, status: int) -> int:
    """Print an error, a line or a list below a line, and return the exit status."""
    print(erased(), end="", file=sys.stderr)
    message = without_passwords(message)
    if message.startswith("Usage:"):  # of a group without a command: its help, a page
        print(message, file=sys.stderr)
    elif message:
        print("multilink: " + "\n  ".join(" ".join(line.split()) for line in message.splitlines()), file=sys.stderr)
    return status
