"""Options that several commands have: names, variables of the environment, help, and checks of their values.

A check here needs no library of the halves, so that a mistake is reported before a command imports any.
"""

import os
import socket
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from orchestration.cli import SharedOptions
from orchestration.config import LinksSettings
from orchestration.console import Console
from schemas import documents
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import NotFoundError, Say, UsageError
from training.mlflow.stored import SQLITE, database_file, stored_names, tracking_uri

if TYPE_CHECKING:
    from training.metrics.relations import RefineConfig

PROBE_S, SERVER_WAIT_S = 4.0, 60.0
PAGES_PORT, KEEP_DAYS = 8090, 30
ADDRESSES = "models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), runs:/RUN/model, a folder or class-names"
Summary = tuple[Iterable[str], Any]  # lines for a person; values for a machine: a mapping or a dataclass
Summaries = Generator[Summary, None, None]
Progress = Say  # prints a line of progress; the tree passes it to a command


def known_lake(lake: str) -> Lake:
    """Return the lake at a path or URI; raises as `Lake.check_exists`."""
    home = Lake.at(lake)
    home.check_exists()
    return home


def known_dataset(lake: str, reference: str) -> str:
    """Return NAME@VERSION of a data set of a lake; errors as of `Lake.find`."""
    if not reference:
        raise UsageError("--dataset: expected NAME or NAME@VERSION, found nothing")
    return "@".join(Lake.at(lake).find(reference))


def existing_path(option: typer.CallbackParam, path: str | None) -> str | None:
    """Return the path of an option's file or folder; addresses, patterns and what is inside an archive are not asked.

    Raises:
        NotFoundError: nothing is there.
    """
    is_plain = path is not None and "!/" not in path and not {*":*?["} & {*path}
    if path is not None and is_plain and not Path(path).exists():
        raise NotFoundError(f"{option.opts[0]} {path}: no such file")
    return path


def _reachable(uri: str | None) -> str | None:
    """Return MLflow's address once a server answers there; libraries wait minutes for one that does not.

    Raises:
        UsageError: no server answers within `SERVER_WAIT_S`, which is enough for one that is starting.
    """
    parts = urlsplit(uri or "")
    if parts.scheme not in ("http", "https"):
        return uri
    until, is_reported = time.monotonic() + SERVER_WAIT_S, False
    while True:
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), timeout=PROBE_S).close()
        except (OSError, ValueError) as problem:
            if isinstance(problem, ValueError) or time.monotonic() > until:
                raise UsageError(f"--tracking-uri {uri}: no server answers there: {problem}") from problem
            if not is_reported:
                Console().say(f"{uri} does not answer ({problem}); trying again for {SERVER_WAIT_S:.0f} s")
                is_reported = True
            time.sleep(1)
        else:
            return uri


def _existing_store(uri: str | None) -> str | None:
    """Return the address of a store that exists: reading models must not create a database of a mistyped name."""
    if uri is not None and uri.startswith(SQLITE) and not Path(database_file(uri)).is_file():
        raise NotFoundError(f"--tracking-uri {uri}: no such file")
    return _reachable(uri)


def _possible_store(uri: str | None) -> str | None:
    """Return the address of a store that exists or can be created: a database in a folder that exists."""
    if uri is not None and uri.startswith(SQLITE) and not Path(database_file(uri)).parent.is_dir():
        raise NotFoundError(f"--tracking-uri {uri}: no such folder")
    return _reachable(uri)


def signature_lines() -> list[str]:
    """Return a hint where statements on models are not signed here."""
    from training.promotions.keys import key_path

    if key_path().is_file():
        return []
    return ["the record of promotions is not signed: it proves nothing; make a key with: multilink key"]


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


def failure_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return what could not be linked, by reason with a sample where there is one, and where it is."""
    reasons = ", ".join(f"{reason} {count}" for reason, count in summary["failures"].items())
    where = summary.get("failures_path", f"{summary['output']}/failures")
    samples = [f"  {reason}: {sample}" for reason, sample in summary.get("samples", {}).items()]
    return [f"failures: {reasons}: {where}", *samples] if reasons else []


def _tracking(check: Callable[[str | None], str | None], text: str) -> Any:
    return typer.Option("--tracking-uri", envvar="MLFLOW_TRACKING_URI", callback=check, help=text)


def datasets(ctx: typer.Context) -> list[str]:
    """Return the data sets of the lake that is named before, or set: what a shell completes."""
    return Lake.at(ctx.params.get("lake") or os.environ.get("MULTILINK_LAKE") or ".").dataset_names()


def models() -> list[str]:
    """Return the models that a shell completes: those of a database, without a server."""
    return ["class-names", *stored_names(tracking_uri(None))]


def recipes() -> list[str]:
    """Return the names of the recipes of training."""
    from training.recipes import RECIPES

    return list(RECIPES)


Calibration = Annotated[
    Path | None,
    typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Calibration of the model; its own by default."),
]
Dataset = Annotated[str, typer.Option(help="NAME or NAME@VERSION.", autocompletion=datasets)]
IndexPath = Annotated[
    str,
    typer.Option("--index", callback=known_index, help="Path or URI of the folder that `multilink index` printed."),
]
LakePath = Annotated[str, typer.Option("--lake", envvar="MULTILINK_LAKE", help="Path or URI of the lake.")]
Model = Annotated[str, typer.Option(help="Registered model.", autocompletion=models)]
ModelOrChampion = Annotated[
    str | None,
    typer.Option(
        "--model",
        help=f"{ADDRESSES}; with --dataset, the data set's champion by default.",
        autocompletion=models,
    ),
]
ReadingSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting (http.*, images.*, features.*)."),
]
Named = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID|URL|HASH", help="As in a takedown list: id:, url:, domain:, sha256:."),
]
PagesPort = Annotated[int, typer.Option(help="Port to listen on; 0: any free one.")]
Recipe = Annotated[
    str | None, typer.Option(help="Named settings; `multilink settings` lists them.", autocompletion=recipes)
]
Reference = Annotated[str, typer.Argument(help="NAME[@VERSION]", autocompletion=datasets)]
References = Annotated[str, typer.Argument(help="NAME: all its versions; or NAME@VERSION")]
Report = Annotated[Path | None, typer.Option(metavar="DIR", help="Write the HTML page to this folder.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe.")
]
Split = Annotated[documents.Split, typer.Option(help="Which documents.")]
Splits = Annotated[
    list[documents.Split] | None,
    typer.Option("--split", help="With --dataset: which documents; may be repeated; all by default."),
]
Store = Annotated[
    str,
    typer.Option(
        envvar="MULTILINK_PAGES_STORE",
        metavar="URL",
        help="Database of texts and decisions, such as postgresql://USER@HOST/NAME; in a local lake by default.",
    ),
]
TakedownList = Annotated[str, typer.Option("--list", help="Path or URI of a takedown list.")]
ShardWorkers = Annotated[int, typer.Option("--workers", help="Number of shards embedded at the same time, by Ray.")]
TrainWorkers = Annotated[int, typer.Option(help="Training processes.")]
Tracking = Annotated[str | None, _tracking(_existing_store, "MLflow's address; ./mlflow.db by default.")]
KnownTracking = Annotated[
    str | None, _tracking(_existing_store, "MLflow's address; without it no model is shown as champion.")
]
NewTracking = Annotated[
    str | None,
    _tracking(_possible_store, "MLflow's address; ./mlflow.db by default. A missing database is created."),
]
Trust = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="KEYS",
        help="Public key, or folder of *.pub.pem, that is trusted; may be given several times. By default those of "
        "multilink.toml, else your own.",
    ),
]


def open_version(reference: Reference, lake: LakePath) -> tuple[Lake, Manifest, Folder]:
    """Return a lake, and the manifest and the folder of a version in it; raises as `read_manifest`."""
    home = Lake.at(lake)
    return (home, *read_manifest(home, reference))


def link_settings(
    precision: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Precision to reach, each document counting once, such as 0.9: less similar links are left out.",
        ),
    ] = None,
    calibration: Calibration = None,
) -> LinksSettings:
    """Return how documents are linked; commands have these parameters by `Links`."""
    return LinksSettings(precision=precision, calibration=str(calibration or ""))


def refinement(
    refine_below: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="For models that predict relations: refine similarities of texts whose two largest differ by less.",
        ),
    ] = None,
    refine_weight: Annotated[
        float | None,
        typer.Option(
            metavar="LAMBDA", help="Weight of that refinement; by default 0.13 (CITE++; for CLUE it was 0.12)."
        ),
    ] = None,
) -> "RefineConfig | None":
    """Return the refinement by relations; commands have these parameters by `Refine`.

    Raises:
        UsageError: an option lacks another.
    """
    if refine_below is None:
        if refine_weight is not None:
            raise UsageError("--refine-weight needs --refine-below")
        return None
    from training.metrics.relations import WEIGHT, RefineConfig

    return RefineConfig(below=refine_below, weight=WEIGHT if refine_weight is None else refine_weight)


Version = Annotated[Callable[[], tuple[Lake, Manifest, Folder]], SharedOptions(open_version)]
Refine = Annotated[Callable[[], "RefineConfig | None"], SharedOptions(refinement)]
Fit = Annotated[
    bool, typer.Option(help="Choose the weights of the model's steps on 20 or more documents of other data.")
]
Links = Annotated[Callable[[], LinksSettings], SharedOptions(link_settings)]
