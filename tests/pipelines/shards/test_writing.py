"""Parts are written a row group at a time, with the size and digest that the manifest lists."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.shards.manifest import DocumentSize, summarise
from pipelines.shards.transforms import _count_hashes, _hashes_of
from pipelines.shards.writing import HASH_BYTES, ShardSummary, write_part, write_rows
from schemas.documents import Split
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import Folder
from schemas.tables import row_of, to_table


def rows(count: int) -> list[dict[str, object]]:
    return [row_of(Failure(Stage.IMAGES, f"r{number}", Reason.NOT_FOUND, "x")) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 700])
def test_a_part_is_what_its_entry_says(tmp_path: Path, count: int) -> None:
    entry = write_rows(Folder(str(tmp_path)), "failures/part.parquet", rows(count), FAILURE_SCHEMA)
    data = (tmp_path / "failures" / "part.parquet").read_bytes()
    assert (entry.bytes, entry.sha256, entry.rows) == (len(data), hashlib.sha256(data).hexdigest(), count)
    table = pq.read_table(tmp_path / "failures" / "part.parquet")
    assert table.schema.equals(FAILURE_SCHEMA, check_metadata=True)
    assert table.to_pylist() == rows(count)


def test_each_table_is_a_row_group_and_is_written_before_the_next_is_made(tmp_path: Path) -> None:
    made: list[weakref.ref[pa.Table]] = []

    def groups() -> Iterator[pa.Table]:
        for _ in range(3):
            assert not any(table() for table in made[:-1])  # the ones before are let go
            table = to_table(rows(100), FAILURE_SCHEMA)
            made.append(weakref.ref(table))
            yield table

    write_part(Folder(str(tmp_path)), "part.parquet", groups(), FAILURE_SCHEMA)
    assert pq.ParquetFile(tmp_path / "part.parquet").num_row_groups == 3


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (write_rows(Folder(str(tmp_path)), name, rows(300), FAILURE_SCHEMA) for name in ("a", "b"))
    assert first.sha256 == second.sha256


def test_statistics_are_those_of_the_documents_one_by_one() -> None:
    sizes = {DocumentSize(2, 3, 3): 2, DocumentSize(5, 1, None): 1, DocumentSize(4, 2, 0): 1}
    found = summarise(sizes, 6)
    assert (found.documents, found.sentences, found.images, found.unique_images) == (4, 13, 9, 6)
    assert (found.median_sentences, found.mean_sentences, found.max_sentences) == (3.0, 3.25, 5)
    assert (found.median_images, found.mean_images, found.max_images) == (2.5, 2.25, 3)
    assert (found.links, found.documents_with_known_links, found.density) == (6, 3, round(1 / 3, 6))


def test_a_split_without_documents_has_no_density() -> None:
    found = summarise({}, 0)
    assert (found.documents, found.median_sentences, found.mean_images, found.max_images) == (0, 0, 0, 0)
    assert found.density is None


@pytest.mark.parametrize("store", ["file system", "object store"])
def test_a_failed_rewrite_leaves_the_part_that_was_there(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    where = str(tmp_path) if store == "file system" else f"s3://lake/v?{request.getfixturevalue('object_store')}"
    folder = Folder(where)
    entry = write_rows(folder, "failures/part.parquet", rows(3), FAILURE_SCHEMA)

    def groups() -> Iterator[pa.Table]:
        yield to_table(rows(2), FAILURE_SCHEMA)
        assert hashlib.sha256(folder.read("failures/part.parquet")).hexdigest() == entry.sha256
        raise RuntimeError("a worker ends")

    with pytest.raises(RuntimeError):
        write_part(folder, "failures/part.parquet", groups(), FAILURE_SCHEMA)
    assert hashlib.sha256(folder.read("failures/part.parquet")).hexdigest() == entry.sha256
    with pytest.raises(RuntimeError):
        write_part(folder, "failures/other.parquet", groups(), FAILURE_SCHEMA)
    assert list(folder.files()) == ["failures/part.parquet"]


def test_the_images_of_a_split_are_counted_in_parts() -> None:
    """No key has more than about one in 256 of them."""
    random = np.random.default_rng(0)
    known = [random.bytes(HASH_BYTES) for _ in range(5000)]
    shards = [b"".join(known[:3000]), b"".join(known[2000:]), b""]
    keyed = [pair for hashes in shards for pair in _hashes_of((ShardSummary(Split.TRAIN, (), {}), {}, hashes))]
    groups: dict[tuple[str, int], list[bytes]] = {}
    for key, part in keyed:
        groups.setdefault(key, []).append(part)
    assert len(groups) == 256 and max(sum(map(len, parts)) for parts in groups.values()) < 60 * HASH_BYTES
    assert sum(_count_hashes(key, parts)[1] for key, parts in groups.items()) == 5000
