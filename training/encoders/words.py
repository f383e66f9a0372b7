"""What the text towers over words share: a vocabulary, its word vectors, and sentences as word numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from schemas.errors import UsageError
from training.encoders.inputs import TextInput, TrainingPass
from training.encoders.rows import WordRows
from training.text.vocabulary import Vocabulary


class WordTower(nn.Module):
    """A text tower that starts from one vector a word.

    Args:
        vocabulary: known words.
        word_dimensions: size of a word vector.
        max_words: words of a sentence that are read.
        is_multilingual: whether a word is looked up in its sentence's language (N 5.2.2).
    """

    def __init__(
        self, vocabulary: Vocabulary, word_dimensions: int, *, max_words: int, is_multilingual: bool = False
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.max_words = max_words
        self.is_multilingual = is_multilingual
        self.embedding = nn.Embedding(len(vocabulary), word_dimensions)

    def prepare(self, given: TextInput) -> WordRows:
        """Return the word numbers of sentences.

        Raises:
            UsageError: a multilingual tower is not told the sentences' languages.
        """
        return WordRows(
            *self.vocabulary.encode(
                given.texts, max_words=self.max_words, languages=languages_of(given, self.is_multilingual)
            )
        )

    def set_word_vectors(self, vectors: npt.NDArray[np.float32]) -> None:
        """Take V x word_dimensions starting vectors."""
        with torch.no_grad():
            self.embedding.weight.copy_(torch.from_numpy(vectors))

    def forward(self, rows: WordRows, training_pass: TrainingPass | None = None) -> Tensor:
        """Return N x d unit vectors."""
        raise NotImplementedError


def languages_of(given: TextInput, is_multilingual: bool) -> tuple[str, ...] | None:
    """Return the sentences' languages for a multilingual tower, None for another.

    Raises:
        UsageError: they are wanted and not known.
    """
    if not is_multilingual:
        return None
    if given.languages is None:
        raise UsageError("this model reads several languages: expected the language of each document, found none")
    return tuple(given.languages)
