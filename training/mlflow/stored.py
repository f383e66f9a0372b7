"""Names of models and of the store that they are in: what a command reads before MLflow is imported.

The registry itself is read by MLflow's interface alone (`registry.py`).

A workspace can be moved or copied, and MLflow's database names its files by absolute paths. An experiment remembers the
folder of the database that it was made in. Where that is another folder than the present one, nothing is read from the
old folder: `check_folder` raises an error, and `relocate` changes each path below the old folder to the new one. Stores
behind a server, and artefacts on an object store, have no such paths.
"""

import os
import re
import shlex
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from schemas.messages import UsageError
from schemas.plugins import OBJECTIVES, SUM, canonical_names
from training.project import setting

SQLITE, DATABASE = "sqlite:///", "mlflow.db"
PREFIX = "multilink-"
FORMS = "models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model, NAME (its champion), a folder or class-names"
FOLDER_TAG = "multilink.folder"
_COLUMNS = (
    ("experiments", "artifact_location"),
    ("experiment_tags", "value"),
    ("runs", "artifact_uri"),
    ("tags", "value"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("model_version_tags", "value"),
    ("registered_model_tags", "value"),
    ("datasets", "dataset_source"),
)
OF_RUN = re.compile(r"runs:/(?P<run>\w+)/model")  # the version that it registered
_REGISTERED = re.compile(r"models:/(?P<name>[^/@]+)(?:/|@)(?P<version>[^/@]+)")


def tracking_uri(
    explicit: str | None, *, environment: Mapping[str, str] = os.environ, directory: Path | None = None
) -> str:
    """Return the tracking store's absolute URI: as given, else as it is set, else a database.

    A relative SQLite path is one below `directory`; None: below the working directory.

    Raises:
        UsageError: what was given is no URI.
    """
    uri = explicit or setting("tracking_uri", environment) or SQLITE + DATABASE
    if uri.startswith(SQLITE):
        return SQLITE + str(((directory or Path.cwd()) / uri.removeprefix(SQLITE)).absolute())
    if "://" not in uri and uri != "databricks":
        raise UsageError(f"tracking store {uri!r}: expected a URI such as sqlite:///mlflow.db or http://host:5000")
    return uri


def is_missing(uri: str) -> bool:
    """Return whether a store is a database that is not there."""
    return uri.startswith(SQLITE) and not Path(database_file(uri)).is_file()


def stored_names(uri: str) -> list[str]:
    """Return the names of the registered models of a database; none of what is none, nor of a server, which is slow."""
    if uri.startswith(SQLITE):
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"{Path(database_file(uri)).as_uri()}?mode=ro", uri=True)) as database,
        ):
            return [name for (name,) in database.execute("SELECT name FROM registered_models ORDER BY name")]
    return []


def registered_name(uri: str) -> tuple[str, str] | None:
    """Return name and version (a number or an alias) of a registered model's address, or None of another."""
    found = _REGISTERED.fullmatch(uri)
    return None if found is None else (found["name"], found["version"])


def model_name(dataset: str, objective: str) -> str:
    """Return the name a data set's models with an objective are registered under, however that is spelled.

    Raises:
        ConfigError: there is no such objective.
    """
    return f"{PREFIX}{dataset}-{SUM.join(canonical_names(OBJECTIVES, objective, key='objective'))}"


def folder_tags(uri: str) -> dict[str, str]:
    """Return the tags that hold the folder of a store, for a new experiment of it; none of a server's."""
    return {FOLDER_TAG: _folder(uri)} if uri.startswith(SQLITE) else {}


def check_folder(uri: str) -> None:
    """Raise a `UsageError` where the file of a store is no database, or was moved or copied since it was written to."""
    if not uri.startswith(SQLITE):
        return
    here = _folder(uri)
    try:
        with closing(sqlite3.connect(f"file:{quote(database_file(uri))}?mode=ro", uri=True)) as database:
            was_in = _folders(database) - {here}
    except sqlite3.DatabaseError as problem:  # of a file that is none, MLflow tells after a hundred seconds
        if problem.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise UsageError(f"tracking store {uri} cannot be opened: {problem}") from problem
        return
    for was in was_in:
        if not (Path(was).is_dir() and Path(was).samefile(here)):
            raise UsageError(
                f"{uri} was moved or copied from {was}, and its paths of files lead to that folder; "
                f"mend it with: multilink relocate --tracking-uri {shlex.quote(uri)}"
            )


def relocate(uri: str) -> tuple[str, int]:
    """Change the paths of a moved database to its folder now; return the folder it was in and how many paths changed.

    Raises:
        UsageError: it is no database in a file, or nothing of it was moved.
    """
    if not uri.startswith(SQLITE):
        raise UsageError(
            f"--tracking-uri {uri}: expected a database in a file, sqlite:///PATH; other stores have no such paths"
        )
    here = _folder(uri)
    with closing(sqlite3.connect(database_file(uri))) as database, database:
        moved = sorted(_folders(database) - {here})
        if not moved:
            raise UsageError(f"--tracking-uri {uri}: nothing to mend, it was not moved")
        return moved[0], sum(_replace_folder(database, *column, was, here) for was in moved for column in _COLUMNS)


def _replace_folder(database: sqlite3.Connection, table: str, column: str, was: str, here: str) -> int:
    """Replace a folder at the beginning of the paths of a column; returns how many there were."""
    begins = re.compile(rf'(?:(file://){re.escape(quote(was))}|(^|"){re.escape(was)})(?=/|$)')
    rows = database.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL").fetchall()
    changed = [
        (begins.sub(lambda found: found[1] + quote(here) if found[1] else found[2] + here, text), row)
        for row, text in rows
    ]
    changed = [(new, row) for (new, row), (_, old) in zip(changed, rows, strict=True) if new != old]
    database.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", changed)
    return len(changed)


def database_file(uri: str) -> str:
    """Return the path of a database's file; what its driver is told (`?timeout=60`) is no part of it."""
    return uri.removeprefix(SQLITE).partition("?")[0]


def _folder(uri: str) -> str:
    return str(Path(database_file(uri)).absolute().parent)


def _folders(database: sqlite3.Connection) -> set[str]:
    """Return the folders that the experiments of a database were made in."""
    return {was for (was,) in database.execute("SELECT value FROM experiment_tags WHERE key = ?", [FOLDER_TAG])}
