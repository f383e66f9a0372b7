"""What a store of runs and models says, read without MLflow, whose import takes seconds; and names of models in it.

MLflow's SQLite database is opened for reading alone. Where a store is another one, or its tables are not the known
ones, there is no answer here, and MLflow is asked (`registry.py`). So a mistyped name is found at once, and statements
on a model are read as fast as they lie in the lake.
"""

import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError, NotFoundError, UsageError
from schemas.plugins import OBJECTIVES, SUM, canonical_names
from training.mlflow.moving import SQLITE, check_folder, opened
from training.promotions.record import CHAMPION, COUNT_TAG, Registered

URI_VARIABLE = "MLFLOW_TRACKING_URI"
DATABASE = "mlflow.db"
PREFIX = "multilink-"
LOG_SUFFIX = ".champions"  # of the name under which earlier releases kept the changes of a model's champion
FORMS = "models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), RUN, runs:/RUN/model, a folder or class-names"
_RUN = re.compile(r"[0-9a-f]{32}")
_REGISTERED = re.compile(r"models:/(?P<name>[^/@]+)(?:/|@)(?P<version>[^/@]+)")
_DELETED = "Deleted_Internal"  # stage of a version that was deleted


def tracking_uri(
    explicit: str | None, *, environment: Mapping[str, str] = os.environ, directory: Path | None = None
) -> str:
    """Return the tracking store's absolute URI: as given, else `MLFLOW_TRACKING_URI`, else a database.

    A relative SQLite path is one below `directory`; None: below the working directory.

    Raises:
        UsageError: what was given is no URI.
    """
    uri = explicit or environment.get(URI_VARIABLE) or SQLITE + DATABASE
    if uri.startswith(SQLITE):
        return SQLITE + str(((directory or Path.cwd()) / uri.removeprefix(SQLITE)).absolute())
    if "://" not in uri and uri != "databricks":
        raise UsageError(f"tracking store {uri!r}: expected a URI such as sqlite:///mlflow.db or http://host:5000")
    return uri


def is_missing(uri: str) -> bool:
    """Return whether a store is a database that is not there."""
    return uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).is_file()


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


def canonical_name(name: str) -> str:
    """Return a registered name with its objective in full and in order; a name without an objective as it is."""
    parts = name.removeprefix(PREFIX).split("-")
    for place in range(1, len(parts) if name.startswith(PREFIX) else 0):
        with suppress(ConfigError):
            return model_name("-".join(parts[:place]), "-".join(parts[place:]))
    return name


def no_model(name: str, uri: str, names: Iterable[str]) -> NotFoundError:
    """Return the error for a name that no registered model has."""
    there = ", ".join(sorted(each for each in names if not each.endswith(LOG_SUFFIX)))
    hint = "" if there else "; another store is named by --tracking-uri"
    return NotFoundError(f"no model '{name}' in {uri}; models there: {there or 'none'}{hint}")


def check_model(tracking: str | None, address: str) -> None:
    """Raise a `NotFoundError` where a SQLite store does not have the registered model of an address, or its version.

    Other addresses, and other stores, are looked up when the model is loaded.
    """
    uri, named = tracking_uri(tracking), registered_name(address)
    if named is not None:
        if (model := stored_model(uri, named[0])) is not None:
            model.number(named[1])
    elif not (":/" in address or _RUN.fullmatch(address) or address == "class-names" or Path(address).is_dir()):
        try:
            if (model := stored_model(uri, address)) is not None:
                model.number(CHAMPION)
        except NotFoundError as problem:
            raise no_address(address, problem) from problem


def no_address(address: str, problem: NotFoundError) -> NotFoundError:
    """Return the error for what is neither a folder nor a registered model with a champion."""
    return NotFoundError(f"--model {address}: no such folder, and {problem}; expected {FORMS}")


def stored_model(uri: str, name: str) -> Registered | None:
    """Return a registered model of a SQLite database, None where MLflow must be asked.

    Raises:
        NotFoundError: there is no such model; the message names those there are.
        UsageError: the database was moved.
    """
    if not uri.startswith(SQLITE) or is_missing(uri):
        return None
    check_folder(uri)
    with suppress(sqlite3.DatabaseError), closing(opened(uri)) as database:
        made = {each: str(at) for each, at in database.execute("SELECT name, creation_time FROM registered_models")}
        found = name if name in made else canonical_name(name)  # spellings of objectives are read with their code
        if found not in made:
            raise no_model(name, uri, made)
        tags = dict(database.execute("SELECT key, value FROM registered_model_tags WHERE name = ?", [found]))
        aliases = database.execute("SELECT alias, version FROM registered_model_aliases WHERE name = ?", [found])
        log = () if COUNT_TAG in tags else _versions(database, found + LOG_SUFFIX)
        return Registered(
            name=found,
            created=made[found],
            aliases={alias: str(version) for alias, version in aliases},
            tags=tags,
            versions={version: own for version, own, _ in _versions(database, found)},
            log=list(earlier_log(log, made[found])),
        )
    return None


def earlier_log(rows: Iterable[tuple[str, Mapping[str, str], int]], created: str) -> Iterator[dict[str, Any]]:
    """Yield the changes of champion of an earlier release's log that count: each follows the last that counted.

    Args:
        rows: versions of the model that was the log, by number, with their tags and when they were made (ms).
        created: when the model was made that the log is about.
    """
    last = "0"
    for number, tags, made_at_ms in rows:
        if (tags.get("model_created"), tags["follows"]) == (created, last):
            last = number
            own = {"champions": tags["line"].split(), "token": tags["token"], "decision": tags["decision"]}
            yield own | {"since_ms": made_at_ms}


def _versions(database: sqlite3.Connection, name: str) -> list[tuple[str, dict[str, str], int]]:
    """Return number, tags and time (ms) of the versions that are there, in order."""
    tags = defaultdict[int, dict[str, str]](dict)
    for version, key, value in database.execute(
        "SELECT version, key, value FROM model_version_tags WHERE name = ?", [name]
    ):
        tags[version][key] = value
    rows = database.execute(
        "SELECT version, creation_time FROM model_versions WHERE name = ? AND current_stage != ? ORDER BY version",
        [name, _DELETED],
    )
    return [(str(version), tags[version], int(at or 0)) for version, at in rows]
