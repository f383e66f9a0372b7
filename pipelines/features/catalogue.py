"""The extractors by name: what each gives and needs, and how one is made.

An extractor's value of an item depends on that item alone. On a CPU that holds to the last bit, whatever shares its
batch, its position, the number of threads and processes, and the order of work, on one kind of processor; on a GPU up
to the rounding of its arithmetic. A column's fingerprint names everything the value does depend on. A model is loaded
when an extractor is first used, and kept. Its module is imported only when it is asked for. Vectors a user already has
are looked up: `pipelines.images.inspect`.

To add an extractor: a module in `extractors/`, named as it or as the network whose columns it gives, with a class that
satisfies the protocol and `ENTRIES`; another package names its `ENTRIES` as an entry point (`schemas.plugins`). A name
that no part registers but that has a weight file ending in `.onnx` is a network of the user's own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import resolve_name
from typing import Any, Protocol, runtime_checkable

import numpy as np
from PIL import Image

from pipelines.features.given_regions import SUFFIX, GivenRegions
from pipelines.features.values import DOCUMENTS, IMAGES, Row
from pipelines.features.weights import WeightFile, parse_weights
from pipelines.images.inspect import encode_jpeg
from pipelines.settings import FeaturesConfig, HttpConfig
from schemas.features import FeatureColumn
from schemas.lake import Folder
from schemas.messages import ConfigError
from schemas.plugins import EXTRACTORS, load_plugin, origin, own_parts, part_names, plugins

SETTINGS = {IMAGES: "features.images", DOCUMENTS: "features.sentences"}  # that name the extractors of a table
_OWN_NETWORKS = {IMAGES: "pipelines.features.onnx:OnnxVectors", DOCUMENTS: "pipelines.features.onnx:OnnxText"}


class Extractor(Protocol):
    """A network, and the columns that it gives at once.

    One that has the attribute `reads_names` looks pictures up by the names of their files (`given_regions`).
    """

    @property
    def columns(self) -> tuple[FeatureColumn, ...]:
        """The columns; a fingerprint is the SHA-256 (hex) of what the column's values depend on."""
        ...

    def extract(self, items: Sequence[Any]) -> Sequence[Row]:
        """Return a value of each column per item, in order: of a stored picture, or of the texts of a document."""
        ...


@runtime_checkable
class HasGraphs(Protocol):
    """An extractor whose networks were made of checkpoints on this machine."""

    def graphs_in(self, folder: Folder) -> Mapping[str, WeightFile]:
        """Return the graphs, kept in a folder, as weights by name: other machines then need no checkpoint."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A column known by name, and what makes its extractor.

    Attributes:
        factory: makes the extractor of some columns of a network: of its name, theirs, the settings and the weights.
        network: columns of one network come from one extractor.
        table: whether it reads pictures (`images`) or sentences (`documents`).
    """

    factory: Callable[[str, Sequence[str], FeaturesConfig, Mapping[str, WeightFile]], Extractor]
    network: str
    table: str = IMAGES


def entries(part: str) -> Mapping[str, Entry]:
    """Return the columns that a part registers, by name: `ENTRIES` of its module.

    Raises:
        ConfigError: a package cannot be imported, or has something else under the name.
    """
    own = own_parts(EXTRACTORS).get(part)
    found: Any = load_plugin(EXTRACTORS, part) if own is None else import_module(own).ENTRIES
    if not isinstance(found, Mapping) or not all(isinstance(entry, Entry) for entry in found.values()):
        raise ConfigError(f"{origin(EXTRACTORS, part)}: expected an Entry of the catalogue for each column, by name")
    return found


def find_entry(name: str) -> Entry | None:
    """Return the entry of a column that a part registers."""
    part = _part_of(name)
    return None if part is None else entries(part)[name]


def module_of(name: str) -> str:
    """Return the module that makes the extractor of a column; a network of the user's own is run by one of ours."""
    part = _part_of(name)
    if part is None:
        return _OWN_NETWORKS[IMAGES].partition(":")[0]
    return own_parts(EXTRACTORS).get(part) or plugins(EXTRACTORS)[part].module


def _part_of(name: str) -> str | None:
    """Return the part that registers a column; a part is imported where the name begins with its own."""
    parts = [part for part in part_names(EXTRACTORS) if name == part or name.startswith(f"{part}-")]
    return next((part for part in parts if name in entries(part)), None)


def extractors(
    names: Iterable[str], table: str, config: FeaturesConfig, http: HttpConfig | None = None
) -> list[Extractor]:
    """Return the extractors that give these columns together, one a network.

    Args:
        names: of columns of a table, or of an `.onnx` file among the weights.
        table: `images` or `documents`.
        config: its weights, limits, storage, and what computes.
        http: how weights are fetched.

    Raises:
        ConfigError: a name is unknown, or its weights are not given.
    """
    weights, columns = parse_weights(config.weights, http), dict[str, list[str]]()
    of_networks: dict[str, Entry] = {}
    for name in names:
        entry = _entry(name, table, weights)
        of_networks.setdefault(entry.network, entry)
        columns.setdefault(entry.network, []).append(name)
    return [entry.factory(network, columns[network], config, weights) for network, entry in of_networks.items()]


def _entry(name: str, table: str, weights: Mapping[str, WeightFile]) -> Entry:
    entry = find_entry(name)
    if entry is None and name in weights and table == IMAGES and weights[name].uri.partition("?")[0].endswith(SUFFIX):
        return Entry(factory=GivenRegions, network=name)
    if entry is None and name in weights and weights[name].is_graph:
        return Entry(factory=resolve_name(_OWN_NETWORKS[table]), network=name, table=table)
    if entry is None:
        known = ", ".join(part_names(EXTRACTORS))
        raise ConfigError(
            f"{SETTINGS[table]} = {name!r}: expected one of {known}, a column of theirs, or a network of your own: "
            f"features.weights={name}=PATH.onnx, or regions of others: features.weights={name}=PATH.parquet"
        )
    if entry.table != table:
        raise ConfigError(f"{SETTINGS[table]} = {name!r}: it is for {SETTINGS[entry.table]}")
    return entry


def made_up_pictures(count: int) -> list[bytes]:
    """Return stored copies of smooth colours with noise, which decode as slowly as photographs."""
    random = np.random.default_rng(0)
    pictures = []
    for coarse in random.integers(0, 256, (count, 7, 9, 3), np.uint8):
        smooth = np.asarray(Image.fromarray(coarse).resize((384, 288), Image.Resampling.BICUBIC), np.float64)
        noisy = np.clip(smooth + random.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
        pictures.append(encode_jpeg(Image.fromarray(noisy)))
    return pictures
