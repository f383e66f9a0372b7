"""Transformer layers over packed tokens (Vaswani 2017), and the text tower of Li 2022 (eq. 6-7) that is made of them.

A layer has attention and feed-forward, each with residual and layer normalisation after it, equal to
`torch.nn.TransformerEncoderLayer` on padded rows. Attention weights are not dropped. The image tower of Li 2022 has the
same layers (`region_concept.py`).
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from schemas.configs import PositiveInt
from training.data.ragged import to_device
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, Tower, unit
from training.towers.packing import Packing, attend, mean_of, pool
from training.towers.words import WordRows, WordsSettings, WordTower


class TransformerLayer(nn.Module):
    """T x d packed tokens -> T x d; tokens see those of their own row."""

    def __init__(self, dimensions: int, *, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_in = nn.Linear(dimensions, 3 * dimensions)
        self.attention_out = nn.Linear(dimensions, dimensions)
        self.attention_norm = nn.LayerNorm(dimensions)
        self.widen = nn.Linear(dimensions, hidden)
        self.narrow = nn.Linear(hidden, dimensions)
        self.norm = nn.LayerNorm(dimensions)
        self.mixed_dropout = nn.Dropout(dropout)
        self.wide_dropout = nn.Dropout(dropout)
        self.dropout = nn.Dropout(dropout)
        nn.init.xavier_uniform_(self.attention_in.weight)
        nn.init.zeros_(self.attention_in.bias)
        nn.init.zeros_(self.attention_out.bias)

    def forward(self, x_TD: Tensor, packing: Packing) -> Tensor:
        query, key, value = self.attention_in(x_TD).chunk(3, dim=-1)
        mixed = self.attention_out(attend(query, key, value, packing, heads=self.heads))
        x_TD = self.attention_norm(x_TD + self.mixed_dropout(mixed))
        widened = self.wide_dropout(F.relu(self.widen(x_TD)))
        return self.norm(x_TD + self.dropout(self.narrow(widened)))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Several layers, one after the other."""

    def __init__(self, dimensions: int, *, layers: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TransformerLayer(dimensions, heads=heads, hidden=hidden, dropout=dropout) for _ in range(layers)
        )

    def forward(self, x_TD: Tensor, packing: Packing) -> Tensor:
        for layer in self.layers:
            x_TD = layer(x_TD, packing)
        return x_TD


POSITION_BOUND = 0.02  # L: position embeddings start uniform in +-0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSettings(WordsSettings):
    """L eq. 6-7: word and position vectors, transformer, mean pool.

    Attributes:
        layers: transformer layers (L: 3).
        heads: attention heads (L: 8).
        hidden_dimensions: width of the inner layer of a feed-forward block (open in L; N: 2048).
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
        self.transformer = Transformer(
            sizes.dimensions,
            layers=config.layers,
            heads=config.heads,
            hidden=config.hidden_dimensions,
            dropout=config.dropout,
        )

    def forward(self, rows: WordRows) -> Tensor:
        packing = Packing.of(rows.sentences)
        device = self.embedding.weight.device
        positions_TE = self.position(to_device(packing.steps, device))
        x_TE = self.dropout(self.norm(self.vectors_at(rows, packing.positions) + positions_TE))
        x_TD = self.transformer(self.project(x_TE), packing)
        return unit(pool(x_TD, packing, mean_of))
