"""The extractors by name: what each gives and needs, how fast it is on this machine, and how one is made.

An extractor's value of an item depends on that item alone. On a CPU that holds to the last bit, whatever shares its
batch, its position, the number of threads and processes, and the order of work, on one kind of machine; on a GPU up to
the rounding of its arithmetic. A column's fingerprint names everything the value does depend on. A model is loaded when
an extractor is first used, and kept. Its module is imported only when it is asked for. Vectors a user already has are
looked up: `pipelines.images.packed`.

To add an extractor: a class in a module beside this one that satisfies the protocol, and an entry in a registry; or an
entry of another package (`schemas.plugins`). A name that is in no registry but has a weight file ending in `.onnx` is a
network of the user's own.
"""

from __future__ import annotations

import timeit
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

import numpy as np
from PIL import Image

from pipelines.features.given_regions import SUFFIXES
from pipelines.features.values import DOCUMENTS, IMAGES, Row, value_array
from pipelines.features.weights import WeightFile, parse_weights
from pipelines.images.inspect import encode_jpeg
from pipelines.settings import FeaturesConfig, HttpConfig
from schemas.errors import ConfigError, MultilinkError
from schemas.features import FeatureColumn, FeatureKind
from schemas.plugins import EXTRACTORS, load_plugin, origin, plugins

SETTINGS = {IMAGES: "features.images", DOCUMENTS: "features.sentences"}  # that name the extractors of a table
PACKAGED, OWN = "packaged", "your own"
AVAILABLE = "available"
ROUNDS = 3
_WORDS = ("we", "cut", "sand", "glue", "paint", "two", "long", "panels", "of", "red", "oak", "with", "a", "saw")
_HERE = "pipelines.features"
_OWN_NETWORKS = {IMAGES: f"{_HERE}.onnx:image_extractor", DOCUMENTS: f"{_HERE}.onnx:OnnxText"}
_OWN_REGIONS = f"{_HERE}.given_regions:GivenRegions"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A column known by name, described without importing its extractor.

    Attributes:
        factory: `module:callable`, the module's name in full.
        network: columns of one network come from one extractor.
        kind: of the column.
        dimensions: of a vector, or of a region's vector; 0 for classes, or where it is not known yet.
        weights: where its weights come from: `packaged`, `your own`, or the name that `features.weights` has to give.
        licence: of the weights, where they are packaged.
        table: of another package's: whether it reads pictures (`images`) or sentences (`documents`).
    """

    factory: str
    network: str
    kind: FeatureKind = FeatureKind.VECTOR
    dimensions: int = 0
    weights: str = PACKAGED
    licence: str = ""
    table: str = IMAGES


def _of_network(network: str, dimensions: int, weights: str, licence: str = "") -> dict[str, Entry]:
    entry = partial(Entry, factory=f"{_HERE}.networks:Network", network=network, weights=weights, licence=licence)
    return {
        network: entry(dimensions=dimensions),
        f"{network}-classes": entry(kind=FeatureKind.CLASSES),
        f"{network}-grid": entry(kind=FeatureKind.REGIONS, dimensions=dimensions),
    }


_LITE = _of_network("efficientnet-lite0", 1280, PACKAGED, "Apache-2.0")
_DETECTOR, _ENCODER = "faster-rcnn", "use-multilingual"
ENTRIES: dict[str, dict[str, Entry]] = {
    IMAGES: {
        **_LITE,
        "grid": _LITE["efficientnet-lite0-grid"],
        **_of_network("densenet169", 1664, "densenet169"),
        **_of_network("nasnet-mobile", 1056, "nasnet-mobile"),
        **_of_network("resnet152", 2048, "resnet152"),
        **_of_network("resnet50", 2048, "resnet50"),
        _DETECTOR: Entry(
            factory=f"{_HERE}.faster_rcnn:FasterRcnn",
            network=_DETECTOR,
            kind=FeatureKind.REGIONS,
            dimensions=1024,
            weights=_DETECTOR,
        ),
    },
    DOCUMENTS: {
        _ENCODER: Entry(
            factory=f"{_HERE}.sentences:UseMultilingual", network=_ENCODER, dimensions=512, licence="Apache-2.0"
        )
    },
}


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
    weights = parse_weights(config.weights, http)
    networks: dict[tuple[str, str], list[str]] = {}
    for name in names:
        entry = _entry(name, table, weights)
        networks.setdefault((entry.factory, entry.network), []).append(name)
    return [
        resolve_name(factory)(network, columns, config, weights) for (factory, network), columns in networks.items()
    ]


def _entry(name: str, table: str, weights: Mapping[str, WeightFile]) -> Entry:
    known = ENTRIES[table]
    if name not in known and name in plugins(EXTRACTORS):
        return _of_plugin(name, table)
    if table == IMAGES and name not in known and name in weights and _is_regions(weights[name]):
        return Entry(factory=_OWN_REGIONS, network=name, kind=FeatureKind.REGIONS, weights=OWN)
    if name not in known and name not in _own_networks(weights):
        names = ", ".join(sorted({*known, *plugins(EXTRACTORS)}))
        raise ConfigError(
            f"{SETTINGS[table]} = {name!r}: expected one of {names}, or a network of your own: "
            f"features.weights={name}=PATH.onnx, or regions of others: features.weights={name}=PATH.tsv"
        )
    return known.get(name) or Entry(factory=_OWN_NETWORKS[table], network=name, weights=OWN)


def _of_plugin(name: str, table: str = "") -> Entry:
    """Return the entry of another package's extractor; of a table, where one is named."""
    entry = load_plugin(EXTRACTORS, name)
    if not isinstance(entry, Entry):
        raise ConfigError(f"{origin(EXTRACTORS, name)}: expected an Entry of the catalogue, found {entry!r}")
    if table not in ("", entry.table):
        raise ConfigError(f"{SETTINGS[table]} = {name!r}: it is for {SETTINGS[entry.table]}")
    return entry


def _own_networks(weights: Mapping[str, WeightFile]) -> list[str]:
    known = {name for entries in ENTRIES.values() for name in entries}
    return [name for name, file in weights.items() if name not in known and file.uri.endswith(".onnx")]


def _is_regions(file: WeightFile) -> bool:
    """Return whether a weight is a published file, or a folder of files, of regions."""
    return file.uri.endswith(SUFFIXES) or Path(file.uri).expanduser().is_dir()


def listed_extractors(config: FeaturesConfig, http: HttpConfig | None = None) -> list[dict[str, Any]]:
    """Return every extractor known by name, and the networks of the user's own among the configured weights.

    A row says the `setting` that it is named in, its `kind`, its `dimensions` (0 where there is none, or it is not
    known), where its `weights` come from, their `licence`, and its `state`: `available`, or what is missing.

    Raises:
        ConfigError: the weights of the configuration are not `NAME=URI`.
    """
    weights = parse_weights(config.weights, http)
    rows = [_listed(name, table, config, http) for table, entries in ENTRIES.items() for name in entries]
    rows += [_listed(name, _of_plugin(name).table, config, http) for name in plugins(EXTRACTORS)]
    rows += [_listed(name, IMAGES, config, http) for name, file in weights.items() if _is_regions(file)]
    for name in _own_networks(weights):  # of images or of sentences: the other row says so
        found = [_listed(name, table, config, http) for table in ENTRIES]
        rows.append(next((row for row in found if row["state"] == AVAILABLE), found[0]))
    return rows


def _listed(name: str, table: str, config: FeaturesConfig, http: HttpConfig | None) -> dict[str, Any]:
    weights = parse_weights(config.weights, http)
    entry, state = _entry(name, table, weights), AVAILABLE
    kind, dimensions = entry.kind, entry.dimensions
    try:
        if entry.weights not in {PACKAGED, OWN, *weights}:
            raise ConfigError(f"needs --set features.weights={entry.weights}=FILE")
        [column] = extractors([name], table, config, http)[0].columns
        kind, dimensions = column.kind, column.dimensions
    except (MultilinkError, ImportError) as problem:
        state = str(problem)
    return {
        "name": name,
        "setting": SETTINGS[table],
        "kind": str(kind) if table == IMAGES else "sentence vector",
        "dimensions": dimensions,
        "weights": entry.weights,
        "licence": entry.licence,
        "state": state,
    }


def listing(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rows of `listed_extractors` as aligned lines."""
    yield f"{'name':27}{'kind':17}{'dimensions':>10}  {'weights':24}state"
    for row in rows:
        licence = f" ({row['licence']})" if row["licence"] else ""
        what = f"{row['name']:27}{row['kind']:17}{row['dimensions'] or '-':>10}"
        yield f"{what}  {row['weights']:24}{row['state']}{licence}"


def measured(name: str, config: FeaturesConfig, http: HttpConfig | None = None, *, count: int) -> dict[str, Any]:
    """Return what an extractor does on this machine with so many made-up pictures, or sentences.

    A row says what it `gives`; how many images or sentences `per_s`, from stored JPEGs or texts to values, in the best
    round; the `value_bytes` of one in a data set, before compression; and the `licence` of packaged weights.

    Raises:
        ConfigError: the extractor is not known, or its weights are not given.
    """
    table = DOCUMENTS if name in {*ENTRIES[DOCUMENTS], *config.sentences} else IMAGES
    if name in plugins(EXTRACTORS):
        table = _of_plugin(name).table
    [extractor] = extractors([name], table, config, http)
    if hasattr(extractor, "reads_names"):
        raise ConfigError(f"{name}: its values are looked up, not computed")
    items = made_up_pictures(count) if table == IMAGES else [[text] for text in made_up_sentences(count)]
    rows = extractor.extract(items)  # it loads the network, and does not count
    seconds = min(timeit.repeat(partial(extractor.extract, items), number=1, repeat=ROUNDS))
    [column], entry = extractor.columns, ENTRIES[table].get(name)
    return {
        "name": name,
        "gives": column.describe() + ("" if table == IMAGES else " a sentence"),
        "per_s": count / seconds,
        "value_bytes": value_array((row[0] for row in rows), column, table).nbytes / count,
        "licence": entry.licence if entry else "",
    }


def measurements(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rows of `measured` as aligned lines."""
    yield f"{'name':27}{'a second':>10}{'bytes':>9}  {'gives':48}licence of the weights"
    for row in rows:
        rate = f"{row['per_s']:>10.1f}{row['value_bytes']:>9.0f}"
        yield f"{row['name']:27}{rate}  {row['gives']:48}{row['licence'] or '-'}"


def made_up_pictures(count: int) -> list[bytes]:
    """Return stored copies of smooth colours with noise, which decode as slowly as photographs."""
    random = np.random.default_rng(0)
    pictures = []
    for coarse in random.integers(0, 256, (count, 7, 9, 3), np.uint8):
        smooth = np.asarray(Image.fromarray(coarse).resize((384, 288), Image.Resampling.BICUBIC), np.float64)
        noisy = np.clip(smooth + random.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
        pictures.append(encode_jpeg(Image.fromarray(noisy)))
    return pictures


def made_up_sentences(count: int) -> list[str]:
    """Return sentences of 3 to 24 words."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(_WORDS, random.integers(3, 25))) for _ in range(count)]
