from pathlib import Path

import numpy as np
import pytest

from schemas.errors import IntegrityError
from training.text.vocabulary import Vocabulary, count_words


def test_words_by_count_then_alphabet() -> None:
    counts = count_words(["b a", "a c b", "c d"])
    assert Vocabulary.from_counts(counts, min_count=2).words == ("<pad>", "<unk>", "a", "b", "c")


def test_unknown_empty_and_long_sentences() -> None:
    vocabulary = Vocabulary(("<pad>", "<unk>", "a", "b"))
    words, sentences = vocabulary.encode(["A b z a", "", "b"], max_words=3)
    assert words.tolist() == [2, 3, 1, 1, 3]
    assert sentences.offsets.tolist() == [0, 3, 4, 5]


def test_round_trip(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_counts(count_words(["naïve 🙂 don't \u2028 x\x85y"]), min_count=1)
    vocabulary.save(tmp_path / "vocabulary.txt")
    again = Vocabulary.load(tmp_path / "vocabulary.txt")
    assert again == vocabulary
    assert again.numbers == vocabulary.numbers
    assert np.array_equal(again.encode(["🙂"], max_words=5)[0], vocabulary.encode(["🙂"], max_words=5)[0])


def test_a_file_that_is_no_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "vocabulary.txt").write_text("a\nb\n")
    with pytest.raises(IntegrityError, match="<pad> and <unk> first"):
        Vocabulary.load(tmp_path / "vocabulary.txt")
