"""Transformer layers over packed tokens, and the text tower of Li 2022 (eq. 6-7) that is made of them.

A layer is Vaswani 2017's (attention and feed-forward, each with residual and layer normalisation after it), equal to
`torch.nn.TransformerEncoderLayer` on padded rows. Attention weights are not dropped: their draw would depend on who
computes them.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from training.config import RegionConceptConfig, TransformerConfig
from training.data.ragged import to_device
from training.text.vocabulary import Vocabulary
from training.towers.dropout import RowDropout
from training.towers.inputs import Sizes, TrainingPass, unit
from training.towers.packing import Packing, attend, drop_tokens, mean_of, pool
from training.towers.words import WordRows, WordTower

POSITION_BOUND = 0.02  # L: position embeddings start uniform in +-0.02


class TransformerLayer(nn.Module):
    """T x d packed tokens -> T x d; tokens see those of their own row."""

    def __init__(self, dimensions: int, config: TransformerConfig | RegionConceptConfig) -> None:
        super().__init__()
        self.heads = config.heads
        hidden, dropout = config.hidden_dimensions, config.dropout
        self.attention_in = nn.Linear(dimensions, 3 * dimensions)
        self.attention_out = nn.Linear(dimensions, dimensions)
        self.attention_norm = nn.LayerNorm(dimensions)
        self.widen = nn.Linear(dimensions, hidden)
        self.narrow = nn.Linear(hidden, dimensions)
        self.norm = nn.LayerNorm(dimensions)
        self.mixed_dropout = RowDropout(dropout)
        self.wide_dropout = RowDropout(dropout)
        self.dropout = RowDropout(dropout)
        nn.init.xavier_uniform_(self.attention_in.weight)
        nn.init.zeros_(self.attention_in.bias)
        nn.init.zeros_(self.attention_out.bias)

    def forward(self, x_TD: Tensor, packing: Packing) -> Tensor:
        query, key, value = self.attention_in(x_TD).chunk(3, dim=-1)
        mixed = self.attention_out(attend(query, key, value, packing, heads=self.heads))
        x_TD = self.attention_norm(x_TD + drop_tokens(self.mixed_dropout, mixed, packing))
        widened = drop_tokens(self.wide_dropout, F.relu(self.widen(x_TD)), packing)
        return self.norm(x_TD + drop_tokens(self.dropout, self.narrow(widened), packing))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Several layers, one after the other."""

    def __init__(self, dimensions: int, config: TransformerConfig | RegionConceptConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(dimensions, config) for _ in range(config.layers))

    def forward(self, x_TD: Tensor, packing: Packing) -> Tensor:
        for layer in self.layers:
            x_TD = layer(x_TD, packing)
        return x_TD


class TransformerTower(WordTower):
    """N sentences -> N x d unit vectors: word and position embedding, LayerNorm, W_T, transformer, mean (L eq. 6-7)."""

    def __init__(self, config: TransformerConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.position = nn.Embedding(self.max_words, config.word_dimensions)
        nn.init.uniform_(self.position.weight, -POSITION_BOUND, POSITION_BOUND)
        self.norm = nn.LayerNorm(config.word_dimensions)
        self.dropout = RowDropout(config.dropout)
        self.project = nn.Linear(config.word_dimensions, sizes.dimensions)
        self.transformer = Transformer(sizes.dimensions, config)

    def forward(self, rows: WordRows, training_pass: TrainingPass | None = None) -> Tensor:
        packing = Packing.of(rows.sentences)
        device = self.embedding.weight.device
        places = to_device(packing.places, device)
        x_TE = drop_tokens(
            self.dropout, self.norm(self.vectors_at(rows, packing.positions) + self.position(places)), packing
        )
        x_TD = self.transformer(self.project(x_TE), packing)
        return unit(pool(x_TD, packing, mean_of))
