"""Text tower of Li 2022 (eq. 6-7): word and position embedding, LayerNorm, W_T, transformer, mean pool."""

from dataclasses import dataclass

from torch import Tensor, nn

from schemas.configs import PositiveInt
from training.data.ragged import to_device
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, Tower, unit
from training.towers.packing import Packing, mean_of, pool
from training.towers.transformer_layers import Transformer
from training.towers.words import WordRows, WordsSettings, WordTower

POSITION_BOUND = 0.02  # L: position embeddings start uniform in +-0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSettings(WordsSettings):
    """L eq. 6-7: word and position vectors, transformer, mean pool.

    Attributes:
        layers: transformer layers (L: 3).
        heads: attention heads (L: 8).
        hidden_dimensions: width of the layer between the two of a feed-forward block (L does not say; N: 2048).
    """

    name: str = "transformer"
    layers: PositiveInt = 3
    heads: PositiveInt = 8
    hidden_dimensions: PositiveInt = 2048

    @property
    def divisor(self) -> int:
        return self.heads

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return TransformerTower(self, sizes, vocabulary)


class TransformerTower(WordTower):
    """N sentences -> N x d unit vectors: word and position embedding, LayerNorm, W_T, transformer, mean (L eq. 6-7)."""

    def __init__(self, config: TransformerSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.position = nn.Embedding(self.max_words, config.word_dimensions)
        nn.init.uniform_(self.position.weight, -POSITION_BOUND, POSITION_BOUND)
        self.norm = nn.LayerNorm(config.word_dimensions)
        self.dropout = nn.Dropout(config.dropout)
        self.project = nn.Linear(config.word_dimensions, sizes.dimensions)
        self.transformer = Transformer(sizes.dimensions, config)

    def forward(self, rows: WordRows) -> Tensor:
        packing = Packing.of(rows.sentences)
        device = self.embedding.weight.device
        positions_TE = self.position(to_device(packing.steps, device))
        x_TE = self.dropout(self.norm(self.vectors_at(rows, packing.positions) + positions_TE))
        x_TD = self.transformer(self.project(x_TE), packing)
        return unit(pool(x_TD, packing, mean_of))
