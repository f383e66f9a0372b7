"""Options that several commands have: their names, where their values come from, and what their help says.

What can be checked of a value without a library is checked here, before a command imports any.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from schemas.console import Console
from schemas.documents import Split as Splits
from schemas.errors import NotFoundError, UsageError
from schemas.lake import Folder, Lake

PROBE_S, SERVER_WAIT_S = 4.0, 60.0
SQLITE = "sqlite:///"
ADDRESSES = "models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), runs:/RUN/model or a folder"
TREC_TAG = "multilink"  # names our rankings in files of TREC
Summary = tuple[Iterable[str], Mapping[str, Any]]  # lines for a person, values for a machine
Summaries = Generator[Summary, None, None]


def known_dataset(lake: str, reference: str) -> str:
    """Return NAME@VERSION of a data set of a lake; errors as of `Lake.find`."""
    if not reference:
        raise UsageError("--dataset: expected NAME or NAME@VERSION, found nothing")
    return "@".join(Lake.at(lake).find(reference))


def known_split(split: str) -> str:
    """Return a split's name.

    Raises:
        UsageError: there is no split of that name.
    """
    if split not in set(Splits):
        raise UsageError(f"--split {split}: expected one of {', '.join(Splits)}")
    return split


def is_there(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path that an option was given.

    Raises:
        NotFoundError: no file is there.
    """
    if path is not None and not path.is_file():
        raise NotFoundError(f"{option.opts[0]} {path}: no such file")
    return path


def _answered(uri: str | None) -> str | None:
    """Return MLflow's address, once a server there answers; what libraries do about one that is away takes minutes.

    Raises:
        UsageError: nobody listened there for `SERVER_WAIT_S`, as while a server starts again.
    """
    parts = urlsplit(uri or "")
    if parts.scheme not in ("http", "https"):
        return uri
    until, is_told = time.monotonic() + SERVER_WAIT_S, False
    while True:
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), timeout=PROBE_S).close()
        except (OSError, ValueError) as problem:
            if isinstance(problem, ValueError) or time.monotonic() > until:
                raise UsageError(f"--tracking-uri {uri}: no server answers there: {problem}") from problem
            if not is_told:
                Console().say(f"{uri} does not answer ({problem}); asking again for {SERVER_WAIT_S:.0f} s")
                is_told = True
            time.sleep(1)
        else:
            return uri


def _with_models(uri: str | None) -> str | None:
    """Return the address of a store that is there: who reads models makes no database of a mistyped name."""
    if uri is not None and uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).is_file():
        raise NotFoundError(f"--tracking-uri {uri}: no such file")
    return _answered(uri)


def _with_folder(uri: str | None) -> str | None:
    """Return the address of a store that is there or can be made: a database in a folder that is there."""
    if uri is not None and uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).parent.is_dir():
        raise NotFoundError(f"--tracking-uri {uri}: no such folder")
    return _answered(uri)


def known_index(path: str) -> str:
    """Return the folder of an index.

    Raises:
        NotFoundError: no folder is there.
    """
    if not Folder(path).exists():
        raise NotFoundError(f"--index {path}: no folder is there")
    return path


def items(text: str, option: str) -> list[str]:
    """Return what an option lists, separated by commas.

    Raises:
        UsageError: it lists nothing.
    """
    found = [item.strip() for item in text.split(",") if item.strip()]
    if not found:
        raise UsageError(f"{option} {text!r}: expected at least one name")
    return found


def with_report(lines: Iterable[str], values: Mapping[str, Any], page: Path | None) -> Summary:
    """Return a summary that says where its page is, if one was written."""
    if page is None:
        return lines, values
    return [*lines, f"report: {page}"], {**values, "report": str(page)}


def _tracking(check: Callable[[str | None], str | None], text: str) -> Any:
    return typer.Option("--tracking-uri", envvar="MLFLOW_TRACKING_URI", callback=check, help=text)


Calibration = Annotated[
    Path | None, typer.Option(metavar="FILE", callback=is_there, help="Calibration of the model; its own by default.")
]
Dataset = Annotated[str, typer.Option(help="NAME or NAME@VERSION.")]
IndexPath = Annotated[
    str,
    typer.Option("--index", callback=known_index, help="Path or URI of the folder that `multilink index` printed."),
]
LakePath = Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Path or URI of the lake.")]
Model = Annotated[str, typer.Option(help="Registered model.")]
ReadingSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting (http.*, images.*, features.*)."),
]
Recipe = Annotated[str | None, typer.Option(help="Named settings; `multilink settings` lists them.")]
Reference = Annotated[str, typer.Argument(help="NAME[@VERSION]")]
References = Annotated[str, typer.Argument(help="NAME: all its versions; or NAME@VERSION")]
Report = Annotated[Path | None, typer.Option(metavar="DIR", help="Write the HTML page to this folder.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe.")
]
Split = Annotated[str, typer.Option(callback=known_split, help="train, val or test.")]
Store = Annotated[
    str,
    typer.Option(
        envvar="MULTILINK_PAGES_STORE",
        metavar="URL",
        help="Database of texts and decisions, such as postgresql://USER@HOST/NAME; in a local lake by default.",
    ),
]
TrainWorkers = Annotated[int, typer.Option(help="Training processes.")]
Tracking = Annotated[str | None, _tracking(_with_models, "MLflow's address; ./mlflow.db by default.")]
KnownTracking = Annotated[
    str | None, _tracking(_with_models, "MLflow's address; without one no model is said to be champion.")
]
NewTracking = Annotated[
    str | None,
    _tracking(_with_folder, "MLflow's address; ./mlflow.db by default. A database that is not there is made."),
]
