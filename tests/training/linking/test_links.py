from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from schemas.links import LINK_SCHEMA, PredictedLink, PredictedRelation
from schemas.tables import check_schema
from training.linking.links import predicted_links, write_links


def test_links_are_the_best_assignment_not_each_rows_best() -> None:
    matrix = np.array([[0.9, 0.8], [0.85, 0.1]], dtype=np.float32)
    found = predicted_links("d", matrix, np.arange(len(matrix)), model_uri="m")
    assert [(link.sentence, link.image) for link in found] == [(1, 0), (0, 1)]
    assert [link.rank for link in found] == [1, 2]
    assert [link.similarity for link in found] == pytest.approx([0.85, 0.8])


def test_a_link_below_zero_is_none() -> None:
    matrix = np.array([[0.5, -0.1], [0.4, -0.9]], dtype=np.float32)
    assert [
        (link.sentence, link.image) for link in predicted_links("d", matrix, np.arange(len(matrix)), model_uri="m")
    ] == [(0, 0)]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_link(shape: tuple[int, int]) -> None:
    assert predicted_links("d", np.zeros(shape, np.float32), np.arange(shape[0])) == []


def test_each_sentence_and_image_has_at_most_one_link() -> None:
    matrix = np.random.default_rng(0).uniform(-1, 1, (12, 5)).astype(np.float32)
    found = predicted_links("d", matrix, np.arange(len(matrix)), model_uri="m")
    assert len({link.sentence for link in found}) == len({link.image for link in found}) == len(found) <= 5
    weights = [link.similarity for link in found]
    assert weights == sorted(weights, reverse=True)


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
