"""Text tower of Liu 2020 (4.3): words with their n-grams, self-attention with residual, point-wise layers, max pool.

A word's vector is the mean of its own and its n-grams' (4.3.1); it is computed once for each different word of a batch.
Neither position nor mask is used (4.3.2); the point-wise CNN is two affine maps token by token (4.3.3).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.encoders.dropout import RowDropout
from training.encoders.inputs import TextInput, TrainingPass
from training.encoders.linear import unit
from training.encoders.packing import Packing, attend, drop_tokens, largest_of, pool
from training.encoders.rows import SubwordRows
from training.encoders.words import languages_of
from training.host_arrays import to_device
from training.text.subwords import Subwords
from training.text.vocabulary import Vocabulary


class SubwordEmbedding(nn.Module):
    """Different words -> their vectors: the mean of the word's row and its n-grams' rows in one table.

    The table holds the vocabulary's words first, then `subwords.buckets` hashed n-grams.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        subwords: Subwords | None,
        word_dimensions: int,
        *,
        max_words: int,
        is_multilingual: bool = False,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.subwords = subwords
        self.max_words = max_words
        self.is_multilingual = is_multilingual
        rows = len(vocabulary) + (subwords.buckets if subwords else 0)
        self.table = nn.EmbeddingBag(rows, word_dimensions, mode="mean")

    def prepare(self, given: TextInput) -> SubwordRows:
        """Return sentences as numbers of different words, and those words' rows of the table."""
        languages = languages_of(given, self.is_multilingual)
        return SubwordRows.of(
            given.texts, self.vocabulary, self.subwords, max_words=self.max_words, languages=languages
        )

    def set_word_vectors(self, vectors: npt.NDArray[np.float32]) -> None:
        """Take V x word_dimensions starting vectors of words."""
        with torch.no_grad():
            self.table.weight[: len(vectors)].copy_(torch.from_numpy(vectors))

    def set_ngram_vectors(self, vectors: npt.NDArray[np.float32]) -> None:
        """Take buckets x word_dimensions starting vectors of n-grams."""
        with torch.no_grad():
            self.table.weight[len(self.vocabulary) :].copy_(torch.from_numpy(vectors))

    def forward(self, rows: SubwordRows, packing: Packing) -> Tensor:
        """Return T x word_dimensions vectors of the packed tokens."""
        device = self.table.weight.device
        words, places = np.unique(rows.words[packing.positions], return_inverse=True)
        entries, different = rows.entries_of(words)
        found: Tensor = self.table(to_device(entries, device), to_device(different.offsets[:-1], device))
        return found.index_select(0, to_device(places, device))


class SelfAttention(nn.Module):
    """Multi-head self-attention of Liu 2020 (eq. 2 and below): heads of given sizes, no bias.

    Args:
        features: w, size of a token.
        heads: h.
        head_dimensions: d_k, size of a query and a key.
        value_dimensions: d_v, size of a value; None: d_k.
        has_output: whether the heads go through W^O, back to `features`.
    """

    def __init__(
        self,
        features: int,
        *,
        heads: int,
        head_dimensions: int,
        value_dimensions: int | None = None,
        has_output: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        values = heads * (value_dimensions or head_dimensions)
        self.query = nn.Linear(features, heads * head_dimensions, bias=False)
        self.key = nn.Linear(features, heads * head_dimensions, bias=False)
        self.value = nn.Linear(features, values, bias=False)
        self.output = nn.Linear(values, features, bias=False) if has_output else None

    def forward(self, x_TE: Tensor, packing: Packing) -> Tensor:
        mixed = attend(self.query(x_TE), self.key(x_TE), self.value(x_TE), packing, heads=self.heads)
        return mixed if self.output is None else self.output(mixed)


class SubwordEncoder(nn.Module):
    """T x w packed word vectors -> N x d (not yet of unit length).

    Args:
        word_dimensions: w.
        dimensions: d.
        heads: of the attention (N: 6).
        head_dimensions: d_k = d_v (N: 64).
        hidden: width between the two point-wise layers (N: 2048).
        dropout: probability on the word vectors.
        has_attention: whether there is attention (ablation N table 1).
    """

    def __init__(
        self,
        word_dimensions: int,
        dimensions: int,
        *,
        heads: int,
        head_dimensions: int,
        hidden: int,
        dropout: float,
        has_attention: bool,
    ) -> None:
        super().__init__()
        self.dropout = RowDropout(dropout)
        self.attention = None
        if has_attention:
            self.attention = SelfAttention(word_dimensions, heads=heads, head_dimensions=head_dimensions)
        self.widen = nn.Linear(word_dimensions, hidden)
        self.narrow = nn.Linear(hidden, dimensions)

    def forward(self, x_TE: Tensor, packing: Packing) -> Tensor:
        x_TE = drop_tokens(self.dropout, x_TE, packing)
        if self.attention is not None:
            x_TE = self.attention(x_TE, packing) + x_TE
        return pool(self.narrow(F.relu(self.widen(x_TE))), packing, largest_of)


class SubwordAttentionTower(nn.Module):
    """N sentences -> N x d unit vectors."""

    def __init__(self, embedding: SubwordEmbedding, encoder: SubwordEncoder) -> None:
        super().__init__()
        self.embedding = embedding
        self.encoder = encoder

    def prepare(self, given: TextInput) -> SubwordRows:
        """Return the sentences' words with their n-grams."""
        return self.embedding.prepare(given)

    def forward(self, rows: SubwordRows, training_pass: TrainingPass | None = None) -> Tensor:
        packing = Packing.of(rows.sentences)
        return unit(self.encoder(self.embedding(rows, packing), packing))
