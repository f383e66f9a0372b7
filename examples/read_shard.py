"""Read a data set version with other people's tools: pyarrow, DuckDB, PyTorch and Ray Data.

    python examples/read_shard.py lake/datasets/diy/0123456789abcdef

A version is a folder of Parquet files. `documents/` has the texts, `images/` the pictures and their vectors, in parts
of equal names: a document's images are in the part of its own number. Every column says in its metadata what it means.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset


def meanings(version: Path) -> dict[str, str]:
    """Return what each column of the documents means."""
    schema = ds.dataset(version / "documents").schema
    return {field.name: (field.metadata or {}).get(b"meaning", b"").decode() for field in schema}


def with_pyarrow(version: Path) -> pa.Table:
    """Return ids and sentences of the training split."""
    documents = ds.dataset(version / "documents", partitioning=["split"])
    return documents.to_table(filter=ds.field("split") == "train", columns=["id", "sentences"])


def with_duckdb(version: Path) -> list[tuple[Any, ...]]:
    """Return each split with its documents and its sentences."""
    files = f"read_parquet('{version}/documents/*/*.parquet', filename = true)"
    split = "parse_path(filename)[-2]"
    query = f"SELECT {split} AS split, count(*), sum(len(sentences)) FROM {files} GROUP BY 1 ORDER BY 1"
    return duckdb.sql(query).fetchall()


class Vectors(IterableDataset[Tensor]):
    """The vectors of all pictures, one by one, float32."""

    def __init__(self, version: Path, column: str) -> None:
        self.version, self.column = version, column

    def __iter__(self) -> Iterator[Tensor]:
        for batch in ds.dataset(self.version / "images").to_batches(columns=[self.column]):
            yield from torch.tensor(batch.column(self.column).to_pylist(), dtype=torch.float32)


def with_torch(version: Path) -> Iterator[Tensor]:
    """Yield batches of the vectors of the first image extractor, 64 x d; the last may be smaller."""
    features = json.loads((version / "manifest.json").read_text())["features"]["images"]
    yield from DataLoader(Vectors(version, f"features.{features[0]['name']}"), batch_size=64)


def size(row: dict[str, Any]) -> dict[str, int]:
    """Return the width and the height of a stored picture."""
    with Image.open(io.BytesIO(row["jpeg"])) as picture:
        return {"width": picture.width, "height": picture.height}


def with_ray_data(version: Path) -> list[dict[str, int]]:
    """Return the sizes of the stored pictures, decoded by Ray's workers."""
    import ray
    import ray.data

    ray.init("local", include_dashboard=False, log_to_driver=False)  # or the address of a cluster
    return list(ray.data.read_parquet(str(version / "images"), columns=["jpeg"]).map(size).take_all())


if __name__ == "__main__":
    where = Path(sys.argv[1])
    for name, meaning in meanings(where).items():
        print(f"{name:20}{meaning}")
    print("pyarrow", with_pyarrow(where).num_rows)
    print("duckdb", with_duckdb(where))
    print("torch", [tuple(batch.shape) for batch in with_torch(where)])
    print("ray", with_ray_data(where)[:3])
