"""Parts by name, ours and those of other packages alike; a part is imported when it is used.

This project's parts are in modules of one package for each group. The entry points that other packages declare when
they are installed are parts as well:

    [project.entry-points."multilink.objectives"]
    info-nce = "my_package.objective:InfoNce"

    group                        package                         a part is
    multilink.text_towers        training/towers                 a dataclass of settings that builds a text tower
    multilink.image_towers       training/towers                 a dataclass of settings that builds an image tower
    multilink.fusers             training/towers                 a dataclass of settings that builds a fuser of sources
    multilink.objectives         training/objectives             a dataclass of settings with its losses
    multilink.similarities       training/similarity             a dataclass of settings with its similarity of two sets
    multilink.extractors         pipelines/features/extractors   entries of `pipelines.features.catalogue`, by column
    multilink.sources            pipelines/sources/datasets      functions that give a `pipelines.recipe.BuildConfig`

A dataclass that is a part has a field `name`, by default the part's name. Names are known without an import, other
spellings of an objective's terms with one. A name of this project is always this project's.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from schemas.messages import ConfigError

NAME, SUM = "name", "+"


@dataclass(frozen=True, slots=True)
class Group:
    """A kind of part.

    Attributes:
        entry_points: group of the entry points of other packages.
        package: of the modules with this project's parts; empty: they are registered elsewhere.
        modules: module -> names of its parts, separated by spaces; empty: every module has one part, of its own name
            (`colour_shape` has `colour-shape`).
    """

    entry_points: str
    package: str = ""
    modules: Mapping[str, str] = field(default_factory=dict, compare=False)


TEXT_TOWERS = Group(
    "multilink.text_towers",
    "training.towers",
    {
        "multi_source": "multi-source subword-attention",
        "recurrence": "bilstm-attention gru subword-gru",
        "region_concept": "transformer",
        "vectors": "sentence",
    },
)
IMAGE_TOWERS = Group(
    "multilink.image_towers",
    "training.towers",
    {"fine_tuned": "fine-tuned", "region_concept": "region-concept", "vectors": "linear linear-bn"},
)
FUSERS = Group("multilink.fusers", "training.towers", {"multi_source": "add attention max neural-net"})
OBJECTIVES = Group(
    "multilink.objectives",
    "training.objectives",
    {
        "closed_form": "closed-form",
        "labelled": "coherence supervised",
        "pairs": "euclidean-batch-hard hal order triplet-hardest triplet-sum",
        "ranking": "cross-document dropout-subdocument intra-document nostruct",
    },
)
SIMILARITIES = Group("multilink.similarities", "training.similarity", {"similarity": "ap dc tk"})
EXTRACTORS = Group("multilink.extractors", "pipelines.features.extractors")
SOURCES = Group("multilink.sources", "pipelines.sources.datasets")


@cache
def own_parts(group: Group) -> Mapping[str, str]:
    """Return name -> module of this project's parts of a group, in the order of their names; nothing is imported."""
    spec = find_spec(group.package) if group.package and not group.modules else None
    files = iter_modules(() if spec is None else spec.submodule_search_locations)
    modules = group.modules or {file.name: file.name.replace("_", "-") for file in files}
    return dict(sorted((name, f"{group.package}.{each}") for each, names in modules.items() for name in names.split()))


@cache
def plugins(group: Group) -> Mapping[str, EntryPoint]:
    """Return the entry points of other packages by name, in the order of their names; nothing is imported."""
    found = sorted(entry_points(group=group.entry_points), key=lambda entry: (entry.name, entry.value))
    return {entry.name: entry for entry in found if entry.name not in own_parts(group)}


def part_names(group: Group) -> list[str]:
    """Return the names of all parts of a group: this project's, then those of other packages."""
    return [*own_parts(group), *plugins(group)]


def canonical_names(group: Group, text: str, *, key: str) -> tuple[str, ...]:
    """Return the names that a sum such as `cross+intra` stands for, in full and in order.

    A name alone is known without an import. Each part gives its `place` in a sum; this project's, other `spellings`.

    Raises:
        ConfigError: there is no such part, or it is named twice; the message begins with `key`.
    """
    known = part_names(group)
    if text in known:
        return (text,)
    short = {spelling: full for name in own_parts(group) for spelling, full in find_part(group, name).spellings.items()}
    names = SUM.join(short.get(spelling, spelling) for spelling in text.split(SUM)).split(SUM)
    if unknown := [name for name in names if name not in known]:
        expected = f"expected one of {', '.join([*known, *short])}, or several joined by {SUM}"
        raise ConfigError(f"{key} = {text!r}: {expected}; found {unknown[0]!r}")
    if len(set(names)) < len(names):
        raise ConfigError(f"{key} = {text!r}: names a term twice")
    return tuple(sorted(names, key=lambda name: (find_part(group, name).place, name)))


@cache
def find_part(group: Group, name: str) -> Any:
    """Return the dataclass of a part.

    Raises:
        ConfigError: a package cannot be imported, or what it has under the name is no such dataclass.
    """
    if name in own_parts(group):
        return _in_module(own_parts(group)[name], name)
    kind = load_plugin(group, name)
    if not _is_part(kind, name):
        raise ConfigError(f"{origin(group, name)}: expected a dataclass whose name is '{name}' by default")
    return kind


@cache
def load_plugin(group: Group, name: str) -> Any:
    """Return what a name of another package stands for.

    Raises:
        ConfigError: its package cannot be imported, has nothing of that name, or another package has the same name.
    """
    entry = plugins(group)[name]
    rivals = [each.value for each in entry_points(group=group.entry_points, name=name) if each.value != entry.value]
    if rivals:
        raise ConfigError(f"{origin(group, name)}: another package has this name, too: {', '.join(rivals)}")
    try:
        return entry.load()
    except Exception as problem:
        raise ConfigError(f"{origin(group, name)}: {type(problem).__name__}: {problem}") from problem


def origin(group: Group, name: str) -> str:
    """Return a part of another package as a message names it: its name, what it stands for, and the package."""
    entry = plugins(group)[name]
    package = "" if entry.dist is None else f" of {entry.dist.name} {entry.dist.version}"
    return f"{group.entry_points} '{name}' = {entry.value}{package}"


def default_name(kind: Any) -> str:
    """Return the name that a dataclass has by default; empty where it has none."""
    found = [field.default for field in dataclasses.fields(kind) if field.name == NAME]
    return str(found[0]) if found and isinstance(found[0], str) else ""


def _in_module(module: str, name: str) -> Any:
    found = [each for each in vars(import_module(module)).values() if _is_part(each, name)]
    if len(found) != 1:
        raise ConfigError(f"{module}: expected one dataclass whose name is '{name}' by default, found {len(found)}")
    return found[0]


def _is_part(kind: Any, name: str) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind) and default_name(kind) == name
