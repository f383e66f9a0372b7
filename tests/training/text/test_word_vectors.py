import struct
from pathlib import Path

import numpy as np
import pytest

from schemas.errors import ConfigError
from training.text.vocabulary import Vocabulary
from training.text.word_vectors import initial_vectors

VOCABULARY = Vocabulary(("<pad>", "<unk>", "cat", "dog", "newt"))
TEXT = "cat 1 2 3\n. . . 4 5 6\ndog 0.5 -1e-1 2\n"


def write_binary(path: Path) -> None:
    rows = [("cat", (1.0, 2.0, 3.0)), ("other", (4.0, 5.0, 6.0)), ("dog", (0.5, -0.1, 2.0))]
    data = b"3 3\n" + b"".join(word.encode() + b" " + struct.pack("<3f", *row) + b"\n" for word, row in rows)
    path.write_bytes(data)


@pytest.mark.parametrize("form", ["glove", "header", "binary"])
def test_known_words_take_their_vectors_and_others_are_uniform(form: str, tmp_path: Path) -> None:
    path = tmp_path / ("vectors.bin" if form == "binary" else "vectors.txt")
    if form == "binary":
        write_binary(path)
    else:
        path.write_text(("3 3\n" if form == "header" else "") + TEXT)
    vectors = initial_vectors(VOCABULARY, dimensions=3, path=str(path), seed=0)
    assert vectors[2].tolist() == [1, 2, 3]
    assert np.allclose(vectors[3], [0.5, -0.1, 2])
    assert not vectors[0].any()
    assert (np.abs(vectors[[1, 4]]) <= 0.2).all() and vectors[[1, 4]].any()


def test_without_a_file_all_are_uniform_and_seeded() -> None:
    vectors = initial_vectors(VOCABULARY, dimensions=50, path="", seed=3)
    assert np.array_equal(vectors, initial_vectors(VOCABULARY, dimensions=50, path="", seed=3))
    assert (np.abs(vectors) <= 0.2).all() and np.abs(vectors).max() > 0.15


@pytest.mark.parametrize(("text", "dimensions"), [("cat 1 2 3\n", 4), ("1 3\ncat 1 2 3\n", 4), ("cat 1 2 3\n", 2)])
def test_another_size_is_refused(text: str, dimensions: int, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(ConfigError):
        initial_vectors(VOCABULARY, dimensions=dimensions, path=str(tmp_path / "v.txt"), seed=0)


def test_a_missing_or_truncated_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        initial_vectors(VOCABULARY, dimensions=3, path=str(tmp_path / "nothing.txt"), seed=0)
    write_binary(tmp_path / "v.bin")
    (tmp_path / "v.bin").write_bytes((tmp_path / "v.bin").read_bytes()[:-6])
    with pytest.raises(ConfigError, match="ends before"):
        initial_vectors(VOCABULARY, dimensions=3, path=str(tmp_path / "v.bin"), seed=0)
