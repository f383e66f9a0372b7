"""fastText's binary format and hashing, against files and vectors that gensim's own implementation makes."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from schemas.errors import ConfigError
from training.text.fasttext import Subwords, hash_bytes, is_fasttext, ngrams, open_fasttext
from training.text.word_vectors import read_vectors

SENTENCES = [["hund", "läuft", "straße"], ["hunde", "laufen", "über", "straßen"], ["日本", "hund"]] * 3


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fasttext = pytest.importorskip("gensim.models.fasttext")
    model = fasttext.FastText(
        sentences=SENTENCES, vector_size=6, min_count=1, min_n=3, max_n=5, bucket=97, epochs=1, workers=1, seed=1
    )
    path = tmp_path_factory.mktemp("fasttext") / "model.bin"
    fasttext.save_facebook_model(model, str(path))
    return path


@pytest.mark.parametrize("word", ["hund", "straße", "日本", "unbekannt", "hundestraße", "ä"])
def test_vectors_are_those_of_gensim(word: str, model_file: Path) -> None:
    fasttext = pytest.importorskip("gensim.models.fasttext")
    expected = fasttext.load_facebook_vectors(str(model_file))[word]
    found = open_fasttext(model_file).vector(word)
    assert found is not None and np.allclose(found, expected, atol=1e-6)


def of_version_11(data: bytes) -> bytes:
    return data[:4] + struct.pack("<i", 11) + data[8:]


def without_magic_number(data: bytes) -> bytes:
    """Return a model in the first form: no magic number and version, no count of pruned words, no quantisation."""
    arguments, dictionary = data[8:64], data[64:84]
    end = 92
    for _ in range(struct.unpack_from("<i", dictionary)[0]):
        end = data.index(b"\0", end) + 1 + 9
    matrix = data[end + 1 :]
    rows, columns = struct.unpack_from("<2q", matrix)
    first = 16 + 4 * rows * columns
    return arguments + dictionary + data[92:end] + matrix[:first] + matrix[first + 1 :]


@pytest.mark.parametrize("older", [of_version_11, without_magic_number])
def test_older_forms_are_read_as_gensim_reads_them(
    model_file: Path, tmp_path: Path, older: Callable[[bytes], bytes]
) -> None:
    fasttext = pytest.importorskip("gensim.models.fasttext")
    path = tmp_path / "older.bin"
    path.write_bytes(older(model_file.read_bytes()))
    assert is_fasttext(path)
    expected, found = fasttext.load_facebook_vectors(str(path)), open_fasttext(path)
    for word in ("hund", "straße", "日本", "unbekannt"):
        assert np.allclose(found.vector(word), expected[word], atol=1e-6)  # type: ignore[arg-type]


def test_what_begins_as_text_is_no_model(tmp_path: Path) -> None:
    for content in (b"3000000 300\n", b"hund 0.1 0.2\n", b"", b"\0" * 8):
        (tmp_path / "vectors.bin").write_bytes(content)
        assert not is_fasttext(tmp_path / "vectors.bin")


def test_a_words_vector_is_the_mean_of_its_own_row_and_its_ngrams(model_file: Path) -> None:
    model = open_fasttext(model_file)
    rows = [model.own_row("hund"), *(model.ngram_rows[bucket] for bucket in model.subwords.of("hund"))]
    assert np.allclose(model.vector("hund"), np.mean(rows, axis=0), atol=1e-7)
    assert np.array_equal(model.own_row("unbekannt"), model.vector("unbekannt"))


def test_hashes_are_gensims_also_of_bytes_above_127() -> None:
    fasttext = pytest.importorskip("gensim.models.fasttext")
    for word in ("hu", "straß", "日本", "a", "über"):
        assert hash_bytes(word.encode()) == fasttext.ft_hash_bytes(word.encode())
        subwords = Subwords(shortest=3, longest=5, buckets=1000)
        assert subwords.of(word) == list(fasttext.ft_ngram_hashes(word, 3, 5, 1000))


def test_ngrams_are_those_of_the_paper() -> None:
    found = ngrams("newsroom", 3, 5)
    three = {"<ne", "new", "ews", "wsr", "sro", "roo", "oom", "om>"}
    assert {ngram for ngram in found if len(ngram) == 3} == three
    assert len(found) == 8 + 7 + 6
    assert ngrams("ab", 1, 1) == ["a", "b"]


def test_a_file_gives_every_word_a_vector(model_file: Path) -> None:
    found = dict(read_vectors(str(model_file), {"hund": 2, "katzenhund": 3}, dimensions=6))
    assert found.keys() == {"hund", "katzenhund"}
    assert Subwords(shortest=3, longest=5, buckets=97) == open_fasttext(model_file).subwords


def test_broken_files_are_refused(model_file: Path, tmp_path: Path) -> None:
    data = model_file.read_bytes()
    assert is_fasttext(model_file)
    for size in (20, 200, len(data) // 2):
        cut = tmp_path / f"{size}.bin"
        cut.write_bytes(data[:size])
        with pytest.raises(ConfigError, match="cut off or broken"):
            open_fasttext(cut)
    other = tmp_path / "other.bin"
    other.write_bytes(data[:4] + b"\x0a\0\0\0" + data[8:])
    with pytest.raises(ConfigError, match="version 10"):
        open_fasttext(other)
    with pytest.raises(ConfigError, match="vectors of 6 numbers"):
        list(read_vectors(str(model_file), {"hund"}, dimensions=5))


def test_a_word_that_is_no_utf_8_is_read_with_a_replacement(model_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "latin.bin"
    path.write_bytes(model_file.read_bytes().replace(b"hund\0", b"h\xffnd\0"))
    found, expected = open_fasttext(path), open_fasttext(model_file)
    assert found.words.keys() - expected.words.keys() == {"h\ufffdnd"}
    assert np.array_equal(found.rows, expected.rows)
