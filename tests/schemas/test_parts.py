"""Reading rows of a part: only their row groups, in the order that is asked for."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.errors import IntegrityError
from schemas.lake import Folder
from schemas.manifest import FileEntry
from schemas.parts import read_part

ROWS = 100


def written(folder: Path, rows: int = ROWS) -> tuple[Folder, FileEntry]:
    table = pa.table({"number": np.arange(ROWS), "name": [f"no. {row}" for row in range(ROWS)]})
    pq.write_table(table, folder / "part.parquet", row_group_size=16)
    data = (folder / "part.parquet").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Folder(str(folder)), FileEntry(path="part.parquet", bytes=len(data), sha256=digest, rows=rows)


@pytest.mark.parametrize(
    ("rows", "groups"),
    [([0], 1), ([99], 1), ([15, 16], 2), ([17, 3, 17, 98], 3), ([], 0), (list(range(ROWS)), 7)],
)
def test_rows_are_read_of_their_row_groups_alone(
    tmp_path: Path, rows: list[int], groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, whole = [], pq.ParquetFile.read_row_groups

    def counted(own: pq.ParquetFile, some: list[int], **options: Any) -> pa.Table:
        read.extend(some)
        return whole(own, some, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", counted)
    found = read_part(*written(tmp_path), ["name"], rows=rows)
    assert found.to_pydict() == {"name": [f"no. {row}" for row in rows]}
    assert len(read) == groups


def test_a_part_with_another_number_of_rows_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="100 rows, the manifest has 99"):
        read_part(*written(tmp_path, 99), ["name"], rows=[1])
