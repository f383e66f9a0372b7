"""What commands do with the project file, `multilink.toml` (`schemas.project`): write it, and heed it.

`demo` and `up` write it, for the workspace they made, into its folder and into the one that they are called in. Its
paths are relative to it, so that a folder can be moved with everything in it.
"""

import json
import logging
import os
import shlex
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from schemas.console import Say
from schemas.errors import NotFoundError
from schemas.project import FILE, KEY, VARIABLES, read_project, setting

_SQLITE = "sqlite:///"

# Nothing is reported to anyone unless the user turns it on, and no bar of another library runs across our lines.
QUIET = {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def be_quiet(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let other libraries report nothing to anyone and draw no bars, unless the environment says otherwise.

    What Beam says of clouds that it has no client of is left out, too.
    """
    for name, value in QUIET.items():
        environment.setdefault(name, value)
    logging.getLogger().addFilter(_is_not_of_a_missing_cloud)
    logging.getLogger("apache_beam.io.filesystems").setLevel(logging.ERROR)


def _is_not_of_a_missing_cloud(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("apitools not found")


def workspace_key(home: Path) -> str:
    """Return the key that signs in a workspace, made where the user has none; empty: the user's key signs.

    Commands and processes that follow find it in the environment.
    """
    from training.promotions.keys import key_path, make_key

    own, path = home.absolute() / "key.pem", key_path()
    if path.absolute() != own and (path.is_file() or setting(KEY)):
        return ""
    if not own.is_file():
        make_key(own)
    os.environ[VARIABLES[KEY]] = str(own)
    return str(own)


def remember(home: Path, directory: Path, *, lake: str, tracking_uri: str, key: str = "", say: Say) -> None:
    """Let the project files of a workspace, which is whole, and of a directory name it.

    Where the directory's named another one, that is said, and how to go back.

    Args:
        home: folder of the workspace.
        directory: where commands are called.
        lake: path or URI.
        tracking_uri: of MLflow.
        key: path of the key that signs there; empty: what a file has stays.
        say: takes a line of progress.

    Raises:
        ConfigError: a file that is there cannot be read.
    """
    _write(home, lake=lake, tracking_uri=tracking_uri, key=key)
    if home.absolute() != directory.absolute():
        before = _absolute(directory)
        _write(directory, lake=lake, tracking_uri=tracking_uri, key=key)
        if "lake" in before and before != _absolute(directory):
            lake, back = _relative(str(before["lake"]), directory), Path(str(before["lake"])).parent
            is_whole = (back / FILE).is_file()
            way = (
                f"multilink use {shlex.quote(str(Path(lake).parent))} goes back"
                if is_whole
                else f"edit {FILE} to go back"
            )
            say(f"{FILE} names {_relative(str(home.absolute()), directory)} from now on, not the lake {lake}; {way}")


def use(home: Path, directory: Path, *, say: Say) -> Mapping[str, str | bool]:
    """Let the project file of a directory name the workspace in another folder, and return what it says.

    Raises:
        NotFoundError: there is no project file in that folder.
        ConfigError: a file cannot be read.
    """
    found = _absolute(home)
    if not {"lake", "tracking_uri"} <= found.keys():
        raise NotFoundError(f"{home}: expected a workspace that demo or up has made, with a {FILE} of its own")
    names = {name: str(value) for name, value in found.items()}
    remember(home, directory, **names, say=say)
    return read_project(directory)


def _write(directory: Path, *, lake: str, tracking_uri: str, key: str) -> None:
    """Write a workspace into the project file of a directory, by relative paths inside of it; other keys stay."""
    from schemas.lake import Folder

    sqlite = tracking_uri.startswith(_SQLITE)
    store = _SQLITE + _relative(tracking_uri.removeprefix(_SQLITE), directory) if sqlite else tracking_uri
    values = read_project(directory) | {"lake": _relative(lake, directory), "tracking_uri": store}
    values |= {KEY: _relative(key, directory)} if key else {}
    lines = ["# Where multilink finds data sets, runs and models in this folder. Options win over it."]
    lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]  # as TOML does
    Folder(str(directory)).write(FILE, ("\n".join(lines) + "\n").encode())


def _absolute(directory: Path) -> dict[str, str | bool]:
    """Return where the project file of a directory finds data sets, runs and models, whatever the working directory."""
    values = {name: value for name, value in read_project(directory).items() if name in ("lake", "tracking_uri", KEY)}
    for name, value in values.items():
        path = str(value).removeprefix(_SQLITE)
        if "://" not in path:
            prefix = _SQLITE if str(value).startswith(_SQLITE) else ""
            values[name] = prefix + str(directory.absolute() / path)
    return values


def recall(directory: Path, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set variables of the environment from the project file of a directory; those that are set already stay.

    Raises:
        ConfigError: the file is no TOML, or has a key that is not known.
    """
    for name, value in read_project(directory).items():
        if not environment.get(VARIABLES[name]):  # an empty variable takes no setting of the file away
            environment[VARIABLES[name]] = str(value).lower() if isinstance(value, bool) else value


def named_places(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the paths and addresses that the environment, and so the project file, names."""
    return [environment[name].removeprefix(_SQLITE) for name in VARIABLES.values() if name in environment]


def remembered_store() -> str | None:
    """Return the address of runs and models, from the environment or the project file here; None: neither has one.

    Raises:
        ConfigError: the file cannot be read.
    """
    return setting("tracking_uri") or None


def _relative(path: str, directory: Path) -> str:
    """Return a path relative to a directory that holds it; another, or a URI, as it is."""
    inside = "://" not in path and Path(path).is_relative_to(directory)
    return str(Path(path).relative_to(directory)) if inside else path
