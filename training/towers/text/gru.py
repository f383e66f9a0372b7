"""Text tower of Hessel 2019 (3.1): a GRU over word vectors, whose last hidden state is the sentence."""

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from schemas.configs import Probability
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, Tower, unit
from training.towers.recurrence import sentence_states
from training.towers.words import WordRows, WordsSettings, WordTower


@dataclass(frozen=True, slots=True, kw_only=True)
class GruSettings(WordsSettings):
    """H 3.1: a GRU over word vectors, its last state.

    Attributes:
        recurrent_dropout: probability that a number of the state is dropped where it enters the next step, the same
            numbers at all steps of a sentence (H's code: 0.4, with `text.dropout=0`); the paper names one dropout.
    """

    name: str = "gru"
    recurrent_dropout: Probability = 0.0

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return GruTower(self, sizes, vocabulary)


class GruTower(WordTower):
    """N sentences -> N x `dimensions` unit vectors; the hidden state has as many numbers."""

    def __init__(self, config: GruSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = nn.GRU(config.word_dimensions, sizes.dimensions)
        self.recurrent_dropout = nn.Dropout(config.recurrent_dropout)

    def forward(self, rows: WordRows) -> Tensor:
        vectors_at = partial(self.vectors_at, rows)
        return unit(sentence_states(self.gru, self.dropout, rows.sentences, vectors_at, self.recurrent_dropout))
