"""Text tower of Liu 2020 (table 1, line 1.8): a GRU over words with their n-grams."""

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, Tower, unit
from training.towers.recurrence import sentence_states
from training.towers.subwords import SubwordRows, SubwordsSettings, SubwordTower


@dataclass(frozen=True, slots=True, kw_only=True)
class SubwordGruSettings(SubwordsSettings):
    """N table 1, line 1.8: a GRU over words with their n-grams."""

    name: str = "subword-gru"

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return SubwordGruTower(self, sizes, vocabulary)


class SubwordGruTower(SubwordTower):
    """N sentences -> N x `dimensions` unit vectors; the hidden state has as many numbers."""

    def __init__(self, config: SubwordGruSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        self.gru = nn.GRU(config.word_dimensions, sizes.dimensions)

    def forward(self, rows: SubwordRows) -> Tensor:
        return unit(sentence_states(self.gru, self.dropout, rows.sentences, partial(self.embedding, rows)))
