"""What commands do with the project file, `multilink.toml` (`training.project`): write it, and heed it.

`demo` and `up` write it, for the workspace they made, into its folder and into the one that they are called in, where
none is there. Its paths are relative to it, so that a folder can be moved with everything in it.
"""

import json
import logging
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from schemas.messages import Say
from training.project import FILE, KEY, VARIABLES, read_project, setting

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
    logging.getLogger().addFilter(_is_not_of_a_missing_cloud)  # one function: of several calls it is added once
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
    """Write the project file of a workspace, and one of the directory in which commands are called.

    A file that is there stays as it is. Where it names another lake, that is reported.

    Args:
        home: folder of the workspace.
        directory: where commands are called.
        lake: path or URI.
        tracking_uri: of MLflow.
        key: path of the key that signs there; empty: none is named.
        say: takes a line of progress.

    Raises:
        ConfigError: a file that is there cannot be read.
    """
    for folder in dict.fromkeys(each.absolute() for each in (home, directory)):
        if not (folder / FILE).exists():
            _write(folder, {"lake": lake, "tracking_uri": tracking_uri} | ({KEY: key} if key else {}))
        elif _relative(lake, folder) != (other := read_project(folder).get("lake", "")):
            say(f"{folder / FILE} stays as it is, with the lake {other or 'unset'}; this workspace: cd {home}")


def _write(directory: Path, values: Mapping[str, str]) -> None:
    """Write a project file; paths inside of the directory are relative to it."""
    from schemas.lake import Folder

    lines = ["# Where multilink finds data sets, runs and models in this folder. Options win over it."]
    for name, value in values.items():
        prefix = _SQLITE if value.startswith(_SQLITE) else ""
        path = prefix + _relative(value.removeprefix(prefix), directory)
        lines.append(f"{name} = {json.dumps(path, ensure_ascii=False)}")  # a string of JSON is one of TOML
    Folder(str(directory)).write(FILE, ("\n".join(lines) + "\n").encode())


def recall(directory: Path, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set variables of the environment from the project file of a directory; those that are set already stay.

    Raises:
        ConfigError: the file is no TOML, or has a key that is not known.
    """
    for name, value in read_project(directory).items():
        if not environment.get(VARIABLES[name]):  # an empty variable takes no setting of the file away
            environment[VARIABLES[name]] = str(value).lower() if isinstance(value, bool) else value


def _relative(path: str, directory: Path) -> str:
    """Return a path relative to a directory that holds it; another, or a URI, as it is."""
    inside = "://" not in path and Path(path).is_relative_to(directory)
    return str(Path(path).relative_to(directory)) if inside else path
