"""The project file, `multilink.toml` in the working directory: where commands find data sets, runs and models.

    lake = "data"
    tracking_uri = "sqlite:///mlflow.db"
    verify = true                       # link, index, search and serve only with champions that verify
    trust = "keys"                      # public keys: a file, or a folder of *.pub.pem
    key = "keys/newsroom.pem"           # signs what is promoted here

`demo` and `up` write it, for the workspace they made, into its folder and into the one that they are called in. An
option wins over the environment, the environment over the file. Its paths are relative to it, so that a folder can be
moved with everything in it.
"""

import json
import os
import shlex
import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from schemas.console import Say
from schemas.errors import ConfigError, NotFoundError

FILE = "multilink.toml"
_SQLITE = "sqlite:///"
VERIFY = "verify"
_VARIABLES = {
    "lake": "MULTILINK_LAKE",
    "tracking_uri": "MLFLOW_TRACKING_URI",
    VERIFY: "MULTILINK_VERIFY",
    "trust": "MULTILINK_TRUST",
    "key": "MULTILINK_KEY",
}

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
    """Let other libraries report nothing to anyone and draw no bars, unless the environment says otherwise."""
    for name, value in QUIET.items():
        environment.setdefault(name, value)


def remember(home: Path, directory: Path, *, lake: str, tracking_uri: str, say: Say) -> None:
    """Let the project files of a workspace, which is whole, and of a directory name it.

    Where the directory's named another one, that is said, and how to go back.

    Args:
        home: folder of the workspace.
        directory: where commands are called.
        lake: path or URI.
        tracking_uri: of MLflow.
        say: takes a line of progress.

    Raises:
        ConfigError: a file that is there cannot be read.
    """
    _write(home, lake=lake, tracking_uri=tracking_uri)
    if home.absolute() != directory.absolute():
        before = _absolute(directory)
        _write(directory, lake=lake, tracking_uri=tracking_uri)
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
    remember(home, directory, lake=str(found["lake"]), tracking_uri=str(found["tracking_uri"]), say=say)
    return _values(directory)


def _write(directory: Path, *, lake: str, tracking_uri: str) -> None:
    """Write a workspace into the project file of a directory, by relative paths inside of it; other keys stay."""
    from schemas.lake import Folder

    sqlite = tracking_uri.startswith(_SQLITE)
    store = _SQLITE + _relative(tracking_uri.removeprefix(_SQLITE), directory) if sqlite else tracking_uri
    values = _values(directory) | {"lake": _relative(lake, directory), "tracking_uri": store}
    lines = ["# Where multilink finds data sets, runs and models in this folder. Options win over it."]
    lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]  # as TOML does
    Folder(str(directory)).write(FILE, ("\n".join(lines) + "\n").encode())


def _absolute(directory: Path) -> dict[str, str | bool]:
    """Return where the project file of a directory finds data sets, runs and models, whatever the working directory."""
    values = {name: value for name, value in _values(directory).items() if name in ("lake", "tracking_uri")}
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
    for name, value in _values(directory).items():
        environment.setdefault(_VARIABLES[name], str(value).lower() if isinstance(value, bool) else value)


def named_places(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the paths and addresses that the environment, and so the project file, names."""
    return [environment[name].removeprefix(_SQLITE) for name in _VARIABLES.values() if name in environment]


def _values(directory: Path) -> dict[str, str | bool]:
    """Return what the project file of a directory says; nothing where there is none."""
    try:
        values = tomllib.loads((directory / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{FILE}: expected TOML: {problem}") from problem
    for name, value in values.items():
        if name not in _VARIABLES or not isinstance(value, bool if name == VERIFY else str):
            expected = "true or false" if name == VERIFY else f"text for one of {', '.join(_VARIABLES)}"
            raise ConfigError(f"{FILE}: {name}: expected {expected}")
    return values


def remembered_store() -> str | None:
    """Return the address of runs and models, from the environment or the project file here; None: neither has one.

    Raises:
        ConfigError: the file cannot be read.
    """
    values = dict(os.environ)
    recall(Path.cwd(), values)
    return values.get(_VARIABLES["tracking_uri"])


def _relative(path: str, directory: Path) -> str:
    """Return a path relative to a directory that holds it; another, or a URI, as it is."""
    inside = "://" not in path and Path(path).is_relative_to(directory)
    return str(Path(path).relative_to(directory)) if inside else path
