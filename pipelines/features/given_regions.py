"""Regions that somebody else detected and published: Anderson et al. 2018's of Visual Genome, which Li 2022 reads.

    FILE.tsv             bottom-up-attention: image_id, image_w, image_h, num_boxes, boxes, features
    FILE.tsv             with classes (LXMERT): img_id, img_h, img_w, objects_id, objects_conf, attrs_id, attrs_conf,
                         num_boxes, boxes, features; arrays are base64 of float32, ids of int64
    FOLDER/<id>.npz      x (regions x d, or its transpose), bbox, image_w, image_h, num_bbox; objects_id, objects_conf,
                         attrs_id and attrs_conf where they are arrays of their own (a pickled `info` is not read)
    FILE.hdf5            bottom-up-attention-vqa: image_features and spatial_features, N x 36 x d or, with pos_boxes,
                         regions x d; FILE_imgid2idx.pkl or .json beside it (image id -> row)
    FOLDER               of several such .tsv files

A picture is found by the name of its file, or by the number in it: `COCO_val2014_000000000042.jpg` has the image id 42.
Names of classes and attributes are files of the user, one name a line: the weights `NAME-classes`, `NAME-attributes`.
"""

import base64
import io
import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from pipelines.features.values import Float32, Passing, Regions, Rejected, Row, feature_column, kept_regions
from pipelines.features.weights import WeightFile, digest_of
from pipelines.settings import FeaturesConfig
from schemas.errors import ConfigError, NotFoundError
from schemas.features import FeatureColumn, FeatureKind

HDF5 = (".h5", ".hdf5")
SUFFIXES = (".tsv", *HDF5)
ATTRIBUTE_FROM = 0.1  # confidence from which an attribute is named, as in Anderson et al.'s demonstration
CLASSES, ATTRIBUTES = "classes", "attributes"
_PLAIN = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_CLASSED = (
    "image_id", "image_h", "image_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf", "num_boxes", "boxes",
    "features",
)  # fmt: skip
_NUMBERED = re.compile(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)")  # COCO's and VIST's names; a recipe's `name_3_0` has no number
_KINDS: Mapping[str, type[np.generic]] = {"objects_id": np.int64, "attrs_id": np.int64}


class StoredRegions(NamedTuple):
    """Regions of one picture as a file has them.

    Attributes:
        boxes: R x 4 (left, top, right, bottom), shares of width and height.
        vectors: R x d.
        classes: R numbers, or None.
        scores: R confidences in the class, 0 to 1, or None.
        attributes: R numbers, or None.
        attribute_scores: R confidences in the attribute, or None.
    """

    boxes: Float32
    vectors: Float32
    classes: npt.NDArray[np.int64] | None = None
    scores: Float32 | None = None
    attributes: npt.NDArray[np.int64] | None = None
    attribute_scores: Float32 | None = None


Read = Callable[[], StoredRegions]


class GivenRegions:
    """Extractor of regions that are looked up by the names of pictures, where others look at the pictures.

    The files are hashed, and read through once for where each picture's regions are, whenever a process first needs
    them.
    """

    reads_names = True

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        self._config = config
        self._file = weights[network]
        self._vocabularies = {kind: weights.get(f"{network}-{kind}") for kind in (CLASSES, ATTRIBUTES)}
        (self._name,) = names

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        """The one column.

        Raises:
            NotFoundError: there is no such file.
            ConfigError: it is of none of the forms, or holds no picture.
        """
        first = next(iter(self._index.values()), None)
        if first is None:
            raise ConfigError(f"features.weights: {self._file.uri}: no picture's regions were found")
        given = first()
        self._labels(given)
        depends_on = {
            "files": list(self._files.values()),
            "names": {kind: list(names) for kind, names in self._names.items()},
            "labels": f"attribute from a confidence of {ATTRIBUTE_FROM}, class",
        }
        column = feature_column(self._name, self._config, given.vectors.shape[1], depends_on, FeatureKind.REGIONS)
        return (column,)

    def extract(self, items: Sequence[str]) -> list[Row]:
        """Return the regions of each picture, given the name or address of its file."""
        return [(self._value(name),) for name in items]

    def _value(self, name: str) -> Regions | Rejected:
        read = next((self._index[key] for key in keys_of(name) if key in self._index), None)
        if read is None:
            return Passing(f"{self._file.uri} has no regions of {PurePosixPath(name).name}")
        found = read()
        scores = np.ones(len(found.boxes), np.float32) if found.scores is None else found.scores
        kept = kept_regions(scores, self._config)
        labels = self._labels(found)
        return Regions(
            boxes=found.boxes[kept].clip(0, 1),
            labels=tuple(labels[row] for row in kept),
            scores=scores[kept],
            vectors=found.vectors[kept],
        )

    def _labels(self, found: StoredRegions) -> list[str]:
        """Return the concept of each region: its class, after its attribute where attributes have names."""
        if found.classes is None:
            return [""] * len(found.boxes)
        classes, attributes = self._names.get(CLASSES), self._names.get(ATTRIBUTES)
        if classes is None:
            raise ConfigError(
                f"features.weights: {self._file.uri} has numbers of classes: give their names, one a line, with --set "
                f"features.weights={self._name}-{CLASSES}=FILE"
            )
        labels = [_named(classes, number, CLASSES) for number in found.classes.tolist()]
        if attributes is None or found.attributes is None or found.attribute_scores is None:
            return labels
        sure = (found.attribute_scores >= ATTRIBUTE_FROM).tolist()
        named = zip(labels, found.attributes.tolist(), sure, strict=True)
        return [
            f"{_named(attributes, number, ATTRIBUTES)} {label}" if is_sure else label
            for label, number, is_sure in named
        ]

    @cached_property
    def _names(self) -> dict[str, tuple[str, ...]]:
        """The names of classes and attributes that are given; of several after commas, the first."""
        return {
            kind: tuple(
                line.partition(",")[0].strip() for line in file.local().path.read_text(encoding="utf-8").splitlines()
            )
            for kind, file in self._vocabularies.items()
            if file is not None
        }

    @cached_property
    def _files(self) -> dict[Path, str]:
        """The files, sorted, with their SHA-256 (hex); of an HDF5 file also the one that says which row is whose."""
        root = Path(self._file.uri).expanduser()
        if root.is_dir():
            paths = (path for path in root.rglob("*") if path.suffix in (".npz", ".tsv") or ".tsv." in path.name)
            return {path: digest_of(path) for path in sorted(paths)}
        found = self._file.local()
        beside = [_index_beside(found.path)] if found.path.suffix in HDF5 else []
        return {found.path: found.sha256} | {path: digest_of(path) for path in beside}

    @cached_property
    def _index(self) -> dict[str, Read]:
        """What reads a picture's regions, by image id, and by the number in it where that is of one image alone."""
        found: dict[str, Read] = {}
        if any(path.suffix in HDF5 for path in self._files):
            found = dict(_hdf5_rows(*self._files))
        else:
            for path in self._files:
                found |= {path.stem: partial(_read_npz, path)} if path.suffix == ".npz" else dict(_tsv_rows(path))
        numbered: dict[str, list[str]] = {}
        for key in found:
            if (number := _number(key)) is not None:
                numbered.setdefault(number, []).append(key)
        return {number: found[keys[0]] for number, keys in numbered.items() if len(keys) == 1} | found


def keys_of(name: str) -> Iterator[str]:
    """Yield the image ids that a picture's file, by its path or address, can have; the likeliest first."""
    path = PurePosixPath(unquote(urlsplit(name).path) if "://" in name else name)
    yield path.name
    yield path.stem
    if (number := _number(path.stem)) is not None:
        yield number


def _number(stem: str) -> str | None:
    match = _NUMBERED.fullmatch(stem)
    return match.group(1) if match else None


def _named(names: Sequence[str], number: int, kind: str) -> str:
    if not 0 <= number < len(names):
        raise ConfigError(f"features.weights: {kind}: {len(names)} names, and a region has the number {number}")
    return names[number]


def _tsv_rows(path: Path) -> Iterator[tuple[str, Read]]:
    """Yield the image id of each line, and what reads it.

    Raises:
        ConfigError: a line has another number of columns than either form.
    """
    with path.open("rb") as file:
        offset = 0
        for number, line in enumerate(file, start=1):
            columns = line.count(b"\t") + 1
            if columns not in (len(_PLAIN), len(_CLASSED)):
                wanted = f"{len(_PLAIN)} or {len(_CLASSED)} columns"
                raise ConfigError(f"features.weights: {path}, line {number}: expected {wanted}, found {columns}")
            yield line[: line.index(b"\t")].decode(), partial(_read_tsv, path, offset, len(line))
            offset += len(line)


def _read_tsv(path: Path, offset: int, size: int) -> StoredRegions:
    with path.open("rb") as file:
        file.seek(offset)
        values = file.read(size).rstrip(b"\r\n").split(b"\t")
    cells = dict(zip(_PLAIN if len(values) == len(_PLAIN) else _CLASSED, values, strict=True))
    count = int(cells["num_boxes"])
    arrays = {
        name: np.frombuffer(base64.b64decode(cell), _KINDS.get(name, np.float32)).reshape(count, -1)
        for name, cell in cells.items()
        if name not in ("image_id", "image_w", "image_h", "num_boxes")
    }
    return _found(arrays["boxes"], arrays["features"], float(cells["image_w"]), float(cells["image_h"]), arrays)


def _read_npz(path: Path) -> StoredRegions:
    with np.load(path, allow_pickle=False) as file:
        names = set(file.files)
        boxes, vectors = file["bbox"], file["x"]
        width, height = float(file["image_w"]), float(file["image_h"])
        extra = {name: file[name] for name in _CLASSED[3:7] if name in names}
    vectors = vectors if len(vectors) == len(boxes) else vectors.T
    return _found(boxes, vectors, width, height, extra)


def _found(
    boxes: Float32, vectors: Float32, width: float, height: float, extra: Mapping[str, npt.NDArray[Any]]
) -> StoredRegions:
    """Return regions whose boxes are in pixels of a picture of a width and height."""
    shares: Float32 = np.asarray(boxes / np.array([width, height, width, height]), np.float32)
    classes, scores, attributes, attribute_scores = (
        np.ravel(extra[name]) if name in extra else None for name in _CLASSED[3:7]
    )
    return StoredRegions(shares, vectors.astype(np.float32), classes, scores, attributes, attribute_scores)


def _hdf5_rows(path: Path, index: Path) -> Iterator[tuple[str, Read]]:
    try:
        import h5py
    except ImportError as problem:
        hint = "h5py is not installed; pip install multilink-pipeline[regions]"
        raise ConfigError(f"features.weights: {path}: {hint}") from problem
    with h5py.File(path, "r") as file:
        if missing := {"image_features", "spatial_features"} - set(file):
            raise ConfigError(
                f"features.weights: {path}: expected {', '.join(sorted(missing))}, found {', '.join(file)}"
            )
        ends = np.asarray(file["pos_boxes"]) if "pos_boxes" in file else None
    for image_id, row in _rows_by_id(index).items():
        rows = row if ends is None else slice(int(ends[row][0]), int(ends[row][1]))
        yield image_id, partial(_read_hdf5, path, rows)


def _read_hdf5(path: Path, rows: int | slice) -> StoredRegions:
    import h5py

    with h5py.File(path, "r") as file:
        return StoredRegions(
            np.asarray(file["spatial_features"][rows])[:, :4].astype(np.float32),
            np.asarray(file["image_features"][rows]).astype(np.float32),
        )


def _index_beside(path: Path) -> Path:
    """Return the file that says which row of an HDF5 file is whose: `<name>_imgid2idx.json` or `.pkl`."""
    tried = [path.with_name(f"{path.stem}_imgid2idx{suffix}") for suffix in (".json", ".pkl")]
    for found in tried:
        if found.is_file():
            return found
    raise NotFoundError(f"features.weights: {path}: expected {tried[0].name} or {tried[1].name} beside it")


def _rows_by_id(path: Path) -> dict[str, int]:
    """Return image id -> row; a pickle may hold nothing but plain values: one that names any class is refused.

    Raises:
        ConfigError: the file is no such mapping.
    """
    data = path.read_bytes()
    try:
        rows = json.loads(data) if path.suffix == ".json" else _PlainUnpickler(io.BytesIO(data)).load()
        return {str(image_id): int(row) for image_id, row in rows.items()}
    except (ValueError, TypeError, AttributeError, EOFError, pickle.UnpicklingError) as problem:
        raise ConfigError(f"features.weights: {path}: expected image id -> row: {problem}") from problem


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")
