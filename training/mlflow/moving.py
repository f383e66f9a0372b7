"""A workspace that was moved or copied: MLflow's database names its files by absolute paths.

An experiment remembers the folder of the database that it was made in. Where that is another folder than the present
one, nothing is read from the old folder: `check_folder` raises an error, and `relocate` changes every path below the
old folder to the new one. Stores behind a server, and artefacts on an object store, have no such paths.
"""

import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from schemas.errors import UsageError

SQLITE = "sqlite:///"
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


def folder_tags(uri: str) -> dict[str, str]:
    """Return the tags that hold the folder of a store, for a new experiment of it; none of a server's."""
    return {FOLDER_TAG: _folder(uri)} if uri.startswith(SQLITE) else {}


def check_folder(uri: str) -> None:
    """Raise a `UsageError` where the database of a store was moved or copied since it was written to."""
    if not uri.startswith(SQLITE):
        return
    here = _folder(uri)
    with suppress(sqlite3.DatabaseError), closing(opened(uri)) as database:
        for was in _folders(database) - {here}:
            if not (Path(was).is_dir() and Path(was).samefile(here)):
                raise UsageError(
                    f"{uri} was moved or copied from {was}, and its paths of files lead to that folder; "
                    f"mend it with: multilink relocate --tracking-uri {uri}"
                )


def opened(uri: str) -> sqlite3.Connection:
    """Return the database of a store, opened for reading alone."""
    return sqlite3.connect(f"file:{quote(uri.removeprefix(SQLITE))}?mode=ro", uri=True)


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
    with closing(sqlite3.connect(uri.removeprefix(SQLITE))) as database, database:
        moved = sorted(_folders(database) - {here})
        if not moved:
            raise UsageError(f"--tracking-uri {uri}: nothing to mend, it was not moved")
        return moved[0], sum(_replace_folder(database, *column, was, here) for was in moved for column in _COLUMNS)


def _replace_folder(database: sqlite3.Connection, table: str, column: str, was: str, here: str) -> int:
    """Replace a folder at the beginning of the paths of a column; returns how many there were."""
    begins = re.compile(rf'(?:(file://){re.escape(quote(was))}|(^|"){re.escape(was)})(?=/|$)')

    def here_instead(found: re.Match[str]) -> str:
        return found[1] + quote(here) if found[1] else found[2] + here

    rows = database.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL").fetchall()
    changed = [(begins.sub(here_instead, text), row) for row, text in rows]
    changed = [(new, row) for (new, row), (_, old) in zip(changed, rows, strict=True) if new != old]
    database.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", changed)
    return len(changed)


def _folder(uri: str) -> str:
    return str(Path(uri.removeprefix(SQLITE)).absolute().parent)


def _folders(database: sqlite3.Connection) -> set[str]:
    """Return the folders that the experiments of a database were made in."""
    return {was for (was,) in database.execute("SELECT value FROM experiment_tags WHERE key = ?", [FOLDER_TAG])}
