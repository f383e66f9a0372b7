"""Regions that somebody else detected: a table that says of pictures by name where they are and what vectors they have.

    name                                box (shares: left, top, right, bottom)   vector         label      score
    COCO_val2014_000000000042.jpg       [0.1, 0.0, 0.5, 0.9]                     [0.3, ...]     "red dog"  0.87
    COCO_val2014_000000000042.jpg       ...

The file is Parquet, a row a region; the rows of a picture stand together; `label` and `score` may be missing. A picture
is found by the name of its file, by that without its ending, or by the number in it: `COCO_val2014_000000000042.jpg`
has the image id 42. `examples/convert_regions.py` makes such a table of what Anderson et al. 2018 and others published.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.features.values import Float32, Passing, Regions, Rejected, Row, feature_column, kept_regions
from pipelines.features.weights import WeightFile
from pipelines.settings import FeaturesConfig
from schemas.features import FeatureColumn, FeatureKind
from schemas.messages import ConfigError

SUFFIX = ".parquet"
NEEDED = ("name", "box", "vector")
_NUMBERED = re.compile(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)")  # COCO's and VIST's names; a recipe's `name_3_0` has no number


class GivenRegions:
    """Extractor of regions that are looked up by the names of pictures, where others look at the pictures.

    The file is hashed, and its names are read, whenever a process first needs them.
    """

    reads_names = True

    def __init__(
        self, network: str, names: Sequence[str], config: FeaturesConfig, weights: Mapping[str, WeightFile]
    ) -> None:
        self._config = config
        self._file = weights[network]
        (self._name,) = names

    @cached_property
    def columns(self) -> tuple[FeatureColumn, ...]:
        """The one column.

        Raises:
            NotFoundError: there is no such file.
            ConfigError: it is no such table, or holds no picture.
        """
        _, sha256 = self._file.local()
        first = next(iter(self._rows.values()), None)
        if first is None:
            raise ConfigError(f"features.weights: {self._file.uri}: no picture's regions are in it")
        size = self._regions(first).vectors.shape[1]
        return (feature_column(self._name, self._config, size, {"file": sha256}, FeatureKind.REGIONS),)

    def extract(self, items: Sequence[str]) -> list[Row]:
        """Return the regions of each picture, given the name or address of its file."""
        return [(self._value(name),) for name in items]

    def _value(self, name: str) -> Regions | Rejected:
        rows = next((self._rows[key] for key in keys_of(name) if key in self._rows), None)
        if rows is None:
            return Passing(f"{self._file.uri} has no regions of {PurePosixPath(name).name}")
        return self._regions(rows)

    def _regions(self, rows: range) -> Regions:
        """Return the regions in some rows."""
        path, sha256 = self._file.local()
        parts = [
            _group(path, sha256, number).slice(max(0, rows.start - begin), rows.stop - max(begin, rows.start))
            for number, begin in enumerate(self._begins[:-1])
            if begin < rows.stop and rows.start < self._begins[number + 1]
        ]
        table = pa.concat_tables(parts)
        count = len(rows)
        scores = np.asarray(table["score"], np.float32) if "score" in table.schema.names else np.ones(count, np.float32)
        kept = kept_regions(scores, self._config)
        labels = table["label"].to_pylist() if "label" in table.schema.names else [""] * count
        return Regions(
            boxes=_matrix(table, "box").reshape(count, 4)[kept].clip(0, 1),
            labels=tuple(labels[row] or "" for row in kept),
            scores=scores[kept],
            vectors=_matrix(table, "vector").reshape(count, -1)[kept],
        )

    @cached_property
    def _begins(self) -> list[int]:
        """The first row of each row group, and the number of all rows."""
        metadata = self._opened.metadata
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        return [int(begin) for begin in np.cumsum([0, *sizes])]

    @cached_property
    def _opened(self) -> pq.ParquetFile:
        try:
            opened = pq.ParquetFile(self._file.local().path)
        except pa.ArrowInvalid as problem:
            raise ConfigError(f"features.weights: {self._file.uri}: expected a Parquet file: {problem}") from problem
        if missing := [name for name in NEEDED if name not in opened.schema_arrow.names]:
            found = ", ".join(opened.schema_arrow.names)
            raise ConfigError(f"features.weights: {self._file.uri}: expected {', '.join(missing)}, found {found}")
        return opened

    @cached_property
    def _rows(self) -> dict[str, range]:
        """The rows of each picture, by name, and by the number in it where that is of one name alone."""
        names = self._opened.read(columns=["name"])["name"].combine_chunks().dictionary_encode()
        codes = np.asarray(names.indices)
        begins = np.flatnonzero(np.diff(codes, prepend=-1))
        keys = [names.dictionary[int(codes[begin])].as_py() for begin in begins]
        if len(set(keys)) < len(keys):
            raise ConfigError(
                f"features.weights: {self._file.uri}: expected the rows of a picture together"
                ", found others between them"
            )
        ends = [*begins.tolist(), len(codes)][1:] if keys else []
        rows = {key: range(int(begin), end) for key, begin, end in zip(keys, begins, ends, strict=True)}
        numbered: dict[str, list[str]] = {}
        for key in rows:
            if (number := _number(PurePosixPath(key).stem)) is not None:
                numbered.setdefault(number, []).append(key)
        return {number: rows[found[0]] for number, found in numbered.items() if len(found) == 1} | rows


@lru_cache(maxsize=4)
def _group(path: Path, sha256: str, number: int) -> pa.Table:
    return pq.ParquetFile(path).read_row_group(number)


def _matrix(table: pa.Table, column: str) -> Float32:
    """Return the numbers of all lists of a column, one after the other."""
    return np.asarray(table[column].combine_chunks().flatten(), np.float32)


def keys_of(name: str) -> Iterator[str]:
    """Yield the names and numbers under which a picture's file, by its path or address, can be; the likeliest first."""
    path = PurePosixPath(unquote(urlsplit(name).path) if "://" in name else name)
    yield path.name
    yield path.stem
    if (number := _number(path.stem)) is not None:
        yield number


def _number(stem: str) -> str | None:
    match = _NUMBERED.fullmatch(stem)
    return match.group(1) if match else None
