"""What other packages add, found by the entry points that they declare when they are installed.

    [project.entry-points."multilink.objectives"]
    focal = "my_package.focal:Focal"

    multilink.objectives   a class of `training.objectives.batch.Objective`
    multilink.towers       a dataclass of settings (`training.config.TowerConfig`) whose `tower` names its class
    multilink.extractors   an entry of the catalogue (`pipelines.features.catalogue.Entry`)
    multilink.sources      a function that returns a `pipelines.config.BuildConfig`, named as its data set

Names are known without importing anything; a package is imported when one of its names is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from schemas.errors import ConfigError

OBJECTIVES, TOWERS = "multilink.objectives", "multilink.towers"
EXTRACTORS, SOURCES = "multilink.extractors", "multilink.sources"


@cache
def plugins(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, in the order of their names; nothing is imported."""
    return {
        entry.name: entry for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value))
    }


@cache
def load_plugin(group: str, name: str) -> Any:
    """Return what a name of a group stands for.

    Raises:
        ConfigError: its package cannot be imported, has nothing of that name, or another package has the same name.
    """
    entry = plugins(group)[name]
    if rivals := [each.value for each in entry_points(group=group, name=name) if each.value != entry.value]:
        raise ConfigError(f"{told(group, name)}: another package has this name, too: {', '.join(rivals)}")
    try:
        return entry.load()
    except Exception as problem:
        raise ConfigError(f"{told(group, name)}: {type(problem).__name__}: {problem}") from problem


def told(group: str, name: str) -> str:
    """Return a plugin as a message names it: its name, what it stands for, and the package that has it."""
    entry = plugins(group)[name]
    package = "" if entry.dist is None else f" of {entry.dist.name} {entry.dist.version}"
    return f"{group} '{name}' = {entry.value}{package}"
