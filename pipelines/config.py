"""The recipes of builds: named complete builds, the first of a data set its default; and what of one changes bytes."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pipelines.recipe import BuildConfig
from pipelines.sources.inputs import path_settings
from pipelines.sources.takedowns import Takedowns
from schemas.configs import Json, pick, resolve
from schemas.errors import ConfigError
from schemas.plugins import SOURCES, load_plugin, origin, own_parts, plugins

# Settings of `http` that say which wishes of hosts and authors are honoured.
HONOURED = ("obey_ai_txt", "obey_content_usage", "obey_robots", "obey_robots_tags", "obey_tdm")
# Settings of features that change the speed, or that the extractors' fingerprints stand for.
_COMPUTING = frozenset({"weights", "device", "threads"})


def content_config(config: BuildConfig) -> dict[str, Json]:
    """Return the settings that change what is built: all but budgets, computing, paths of files, and most of `http`.

    Of that there is what is honoured of the wishes of hosts and authors. Weights are in the fingerprints of the
    extractors.
    """
    values = resolve(config)
    del values["max_failure_share"], values["takedown_list"]
    values["http"] = {name: getattr(config.http, name) for name in HONOURED}
    values["takedowns"] = Takedowns(config.takedowns).fingerprint  # not the entries: they would name what must go
    source, features = values["source"], values["features"]
    if isinstance(source, dict) and isinstance(features, dict):
        paths = path_settings(config.source)  # their content is fingerprinted instead
        values["source"] = {name: value for name, value in source.items() if name not in paths}
        values["features"] = {name: value for name, value in features.items() if name not in _COMPUTING}
    return values


def recipes(part: str) -> Mapping[str, Callable[[], BuildConfig]]:
    """Return the builds that a part registers, by name: `RECIPES` of its module.

    Raises:
        ConfigError: its package cannot be loaded, or has something else under the name.
    """
    own = own_parts(SOURCES).get(part)
    found: Any = load_plugin(SOURCES, part) if own is None else import_module(own).RECIPES
    if not isinstance(found, Mapping) or not all(isinstance(make(), BuildConfig) for make in found.values()):
        raise ConfigError(f"{origin(SOURCES, part)}: expected functions that return a BuildConfig, by name")
    return found


RECIPES = dict(sorted(pair for part in own_parts(SOURCES) for pair in recipes(part).items()))


def datasets() -> list[str]:
    """Return the names of the data sets that can be built, those of other packages among them."""
    return sorted({*(make().dataset for make in RECIPES.values()), *plugins(SOURCES)})


def recipe(dataset: str, name: str | None = None) -> BuildConfig:
    """Return a data set's named recipe, or its default one.

    Raises:
        ConfigError: there is no such data set, or no such recipe for it.
    """
    pick(dict.fromkeys(datasets()), dataset, what="data set")
    known = recipes(dataset) if dataset in plugins(SOURCES) else RECIPES
    fitting = {key: make for key, make in known.items() if make().dataset == dataset}
    return pick(fitting, name or dataset, what="recipe")()
