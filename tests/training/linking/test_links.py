from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from schemas.links import LINK_SCHEMA, PredictedLink, PredictedRelation
from schemas.tables import check_schema
from training.linking.links import by_similarity, write_links
from training.similarity.assignment import predicted_pairs


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        pytest.param([[0.9, 0.8], [0.85, 0.1]], [(1, 0), (0, 1)], id="the best assignment, not each row's best"),
        pytest.param([[0.5, -0.1], [0.4, -0.9]], [(0, 0)], id="none below zero"),
        *(pytest.param(np.zeros(shape), [], id=f"{shape}") for shape in ((0, 3), (3, 0), (0, 0))),
    ],
)
def test_linked_pairs(matrix: list[list[float]], expected: list[tuple[int, int]]) -> None:
    similarities = np.array(matrix, dtype=np.float32)
    rows, columns = by_similarity(similarities, *predicted_pairs(similarities))
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


def test_written_links_have_the_schema(tmp_path: Path) -> None:
    links = [
        PredictedLink("d", 1, 0, 0.5, 1, "m"),
        PredictedLink("e", 0, 2, 0.25, 1, "m", relations=(PredictedRelation("story", 0.75),)),
    ]
    path = tmp_path / "out" / "links.parquet"
    assert write_links(links, path) == 2
    table = pq.read_table(path)
    check_schema(table.schema, LINK_SCHEMA, where="links")
    assert table.to_pylist()[1] == {
        "document": "e",
        "sentence": 0,
        "image": 2,
        "similarity": 0.25,
        "rank": 1,
        "model": "m",
        "probability": None,
        "relations": [{"name": "story", "probability": 0.75}],
        "text": None,
        "source": None,
        "word": None,
    }


def test_no_links_give_an_empty_table(tmp_path: Path) -> None:
    assert write_links([], tmp_path / "links.parquet") == 0
    assert pq.read_table(tmp_path / "links.parquet").schema.names == LINK_SCHEMA.names


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "links.parquet"
    write_links([PredictedLink("d", 0, 0, 0.5, 1, "m")], path)
    before = path.read_bytes()

    def broken() -> Iterator[PredictedLink]:
        yield PredictedLink("e", 0, 0, 0.5, 1, "m")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_links(broken(), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["links.parquet"]


def test_what_a_killed_program_left_goes_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "part-00000-of-00001.parquet"
    (tmp_path / f".{path.name}.0123abcd.tmp").write_bytes(b"half")
    (tmp_path / ".another.parquet.0123abcd.tmp").write_bytes(b"of another file")
    write_links([PredictedLink("d", 0, 0, 0.5, 1, "m")], path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".another.parquet.0123abcd.tmp", path.name]
