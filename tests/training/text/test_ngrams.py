"""N-grams, their hashes and fastText's binary models, beside gensim's own implementation."""

from pathlib import Path

import numpy as np
import pytest

from schemas.errors import ConfigError
from training.text.vocabulary import Subwords, hash_bytes, ngrams
from training.text.word_vectors import is_fasttext, open_binary, own_row, read_vectors

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


def test_a_words_vector_is_the_mean_of_its_own_row_and_its_ngrams(model_file: Path) -> None:
    """So a table of words and n-grams that starts from `own_row` gives the model's vectors."""
    model, subwords = open_binary(model_file), Subwords(shortest=3, longest=5, buckets=97)
    for word in ("hund", "straße", "日本"):
        rows = [own_row(model, word), *(model.vectors_ngrams[bucket] for bucket in subwords.of(word))]
        assert np.allclose(model.get_vector(word), np.mean(rows, axis=0), atol=1e-6)
    assert np.array_equal(own_row(model, "unbekannt"), model.get_vector("unbekannt"))


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
    assert ngrams("ab", 1, 1) == ["a", "b"] and ngrams("ab", 0, 0) == []


def test_a_file_gives_every_word_with_an_ngram_a_vector(model_file: Path) -> None:
    found = dict(read_vectors(str(model_file), {"hund": 2, "katzenhund": 3, "": 4}, dimensions=6))
    assert found.keys() == {"hund", "katzenhund"}


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5])
def test_a_file_that_is_cut_off_is_refused(share: float, model_file: Path, tmp_path: Path) -> None:
    data, cut = model_file.read_bytes(), tmp_path / "cut.bin"
    cut.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ConfigError, match="expected a whole file"):
        open_binary(cut)


def test_other_files_and_sizes_are_refused(model_file: Path, tmp_path: Path) -> None:
    assert is_fasttext(model_file)
    other = tmp_path / "other.bin"
    for odd in (b"hund 0.1 0.2\n", b"", b"\0" * 200):
        other.write_bytes(odd)
        with pytest.raises(ConfigError, match=r"expected a whole file|vectors of 0 numbers"):
            list(read_vectors(str(other), {"hund"}, dimensions=6))
    with pytest.raises(ConfigError, match="vectors of 6 numbers"):
        list(read_vectors(str(model_file), {"hund"}, dimensions=5))
