"""Read a data set version with other people's tools: pyarrow, DuckDB, PyTorch and Ray Data.

    python examples/read_shard.py lake/datasets/diy/0123456789abcdef

A version is a folder of Parquet files. `documents/` has the texts, `images/` the pictures and their vectors, in parts
of equal names: a document's images are in the part of its own number. Every column says in its metadata what it means.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def with_pyarrow(version: Path) -> Any:
    """Return the texts of the training split, and print what the columns mean."""
    import pyarrow.dataset as ds

    documents = ds.dataset(version / "documents", partitioning=["split"])
    for column in documents.schema:
        print(column.name, (column.metadata or {}).get(b"meaning", b"").decode())
    return documents.to_table(filter=ds.field("split") == "train", columns=["id", "sentences"])


def with_duckdb(version: Path) -> list[tuple[Any, ...]]:
    """Return each split with its documents and its sentences."""
    import duckdb

    return duckdb.sql(
        f"""
        SELECT split, count(*) AS documents, sum(len(sentences)) AS sentences
        FROM read_parquet('{version}/documents/*/*.parquet', hive_partitioning = false, filename = true),
             LATERAL (SELECT parse_path(filename)[-2] AS split)
        GROUP BY split ORDER BY split
        """
    ).fetchall()


def with_torch(version: Path, column: str) -> Iterator[Any]:
    """Yield batches of image vectors, float32, b x d."""
    import pyarrow.dataset as ds
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Vectors(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for batch in ds.dataset(version / "images").to_batches(columns=[column]):
                yield from torch.tensor(batch.column(column).to_pylist(), dtype=torch.float32)

    yield from DataLoader(Vectors(), batch_size=64)


def with_ray_data(version: Path) -> Any:
    """Return how wide and how high the stored pictures are, decoded by Ray's workers."""
    import ray.data
    from PIL import Image

    def size(row: dict[str, Any]) -> dict[str, int]:
        with Image.open(io.BytesIO(row["jpeg"])) as picture:
            return {"width": picture.width, "height": picture.height}

    return ray.data.read_parquet(str(version / "images"), columns=["jpeg"]).map(size)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    print(with_pyarrow(where))
    print(with_duckdb(where))
    vectors = next(name for name in __import__("json").loads((where / "manifest.json").read_text())["features"])
    print(vectors)
