"""Transformer layers over packed tokens, and the text tower of Li 2022 (eq. 6-7) that is made of them.

A layer is Vaswani 2017's (attention and feed-forward, each with residual and layer normalisation after it), equal to
`torch.nn.TransformerEncoderLayer` on padded rows. Attention weights are not dropped: their draw would depend on who
computes them.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from training.encoders.dropout import RowDropout
from training.encoders.inputs import TrainingPass
from training.encoders.linear import unit
from training.encoders.packing import Packing, attend, drop_tokens, mean_of, pool
from training.encoders.rows import WordRows
from training.encoders.words import WordTower
from training.host_arrays import to_device
from training.text.vocabulary import Vocabulary

POSITION_BOUND = 0.02  # L: position embeddings start uniform in +-0.02


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

    def __init__(self, dimensions: int, *, layers: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TransformerLayer(dimensions, heads=heads, hidden=hidden, dropout=dropout) for _ in range(layers)
        )

    def forward(self, x_TD: Tensor, packing: Packing) -> Tensor:
        for layer in self.layers:
            x_TD = layer(x_TD, packing)
        return x_TD


class TransformerTower(WordTower):
    """N sentences -> N x d unit vectors: word and position embedding, LayerNorm, W_T, transformer, mean (L eq. 6-7).

    Args:
        vocabulary: known words.
        dimensions: d, size of the joint space.
        word_dimensions: size of a word vector.
        layers: N_T.
        heads: attention heads.
        hidden: width of the feed-forward blocks.
        dropout: probability, on the embeddings and in the layers.
        max_words: words of a sentence that are read.
        is_multilingual: whether a word is looked up in its sentence's language.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        dimensions: int,
        *,
        word_dimensions: int,
        layers: int,
        heads: int,
        hidden: int,
        dropout: float,
        max_words: int,
        is_multilingual: bool = False,
    ) -> None:
        super().__init__(vocabulary, word_dimensions, max_words=max_words, is_multilingual=is_multilingual)
        self.position = nn.Embedding(max_words, word_dimensions)
        nn.init.uniform_(self.position.weight, -POSITION_BOUND, POSITION_BOUND)
        self.norm = nn.LayerNorm(word_dimensions)
        self.dropout = RowDropout(dropout)
        self.project = nn.Linear(word_dimensions, dimensions)
        self.transformer = Transformer(dimensions, layers=layers, heads=heads, hidden=hidden, dropout=dropout)

    def forward(self, rows: WordRows, training_pass: TrainingPass | None = None) -> Tensor:
        packing = Packing.of(rows.sentences)
        device = self.embedding.weight.device
        words = to_device(rows.words[packing.positions], device)
        places = to_device(packing.places, device)
        x_TE = drop_tokens(self.dropout, self.norm(self.embedding(words) + self.position(places)), packing)
        x_TD = self.transformer(self.project(x_TE), packing)
        return unit(pool(x_TD, packing, mean_of))
