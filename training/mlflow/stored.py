"""Names of models and of the store that they are in: what a command reads before MLflow is imported.

The registry itself is read by MLflow's interface alone (`registry.py`).
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from schemas.errors import ConfigError, NotFoundError, UsageError
from schemas.plugins import OBJECTIVES, SUM, canonical_names
from schemas.project import setting
from training.mlflow.moving import SQLITE

DATABASE = "mlflow.db"
PREFIX = "multilink-"
FORMS = "models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), RUN, runs:/RUN/model, a folder or class-names"
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
    there = ", ".join(sorted(names))
    hint = "" if there else "; another store is named by --tracking-uri"
    return NotFoundError(f"no model '{name}' in {uri}; models there: {there or 'none'}{hint}")


def no_address(address: str, problem: NotFoundError) -> NotFoundError:
    """Return the error for what is neither a folder nor a registered model with a champion."""
    return NotFoundError(f"--model {address}: no such folder, and {problem}; expected {FORMS}")
