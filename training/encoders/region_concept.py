"""Image tower of Li 2022 (eq. 8-10): regions and their labels ("concepts") as tokens of a transformer, mean pool.

    region   (LayerNorm(W_V f + b_V) + LayerNorm(segment 0)) / 2
    concept  (LayerNorm(W_T w + b_T) + LayerNorm(segment 1)) / 2,   w: mean word vector of the label

Word vectors, and W_T where the text tower has it (`transformer`), are the text tower's own modules: trained by both.
The ablations of table 3 leave out the concepts, or the transformer (softmax pooling with weights of one linear layer),
or both. An image in which nothing was detected is one blank region.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.errors import UsageError
from training.encoders.dropout import RowDropout
from training.encoders.inputs import ImageInput, TrainingPass
from training.encoders.linear import unit
from training.encoders.packing import Packing, blocks, drop_tokens, mean_of, pool, softmax_pool
from training.encoders.rows import RegionRows
from training.encoders.transformer import Transformer, TransformerTower
from training.encoders.words import WordTower
from training.host_arrays import to_device
from training.text.vocabulary import Vocabulary

REGION, CONCEPT = 0, 1


class Concepts(nn.Module):
    """Different labels -> L x d tokens, through the word vectors of a text tower."""

    def __init__(self, text: WordTower, dimensions: int) -> None:
        super().__init__()
        self.vocabulary: Vocabulary = text.vocabulary
        self.embedding = text.embedding
        self.project: nn.Linear = (
            text.project if isinstance(text, TransformerTower) else nn.Linear(text.embedding.embedding_dim, dimensions)
        )
        self.norm = nn.LayerNorm(dimensions)

    def forward(self, rows: RegionRows, labels: np.ndarray) -> Tensor:
        """Return T x d tokens of T label numbers; each different label is computed once."""
        device = self.embedding.weight.device
        different, places = np.unique(labels, return_inverse=True)
        words = to_device(rows.label_words[rows.different.positions(different)].astype(np.int64), device)
        starts = to_device(rows.different.take(different).offsets[:-1], device)
        vectors = F.embedding_bag(words, self.embedding.weight, starts, mode="mean")
        tokens: Tensor = self.norm(self.project(vectors))
        return tokens.index_select(0, to_device(places, device))


class RegionConceptTower(nn.Module):
    """N images with regions of `features` numbers -> N x d unit vectors.

    Args:
        features: f, size of a region's vector (L: 2048).
        dimensions: d, size of the joint space.
        concepts: text tower whose word vectors read the labels; None: no concepts.
        layers: N_C; 0: softmax pooling instead of a transformer.
        heads: attention heads.
        hidden: width of the feed-forward blocks.
        dropout: probability, on the tokens and in the layers.
        max_regions: regions of an image that are read, the most certain.
    """

    def __init__(
        self,
        features: int,
        dimensions: int,
        *,
        concepts: WordTower | None,
        layers: int,
        heads: int,
        hidden: int,
        dropout: float,
        max_regions: int,
    ) -> None:
        super().__init__()
        self.features = features
        self.max_regions = max_regions
        self.region = nn.Linear(features, dimensions)
        self.region_norm = nn.LayerNorm(dimensions)
        self.segment = nn.Embedding(2, dimensions)
        self.segment_norm = nn.LayerNorm(dimensions)
        self.concepts = Concepts(concepts, dimensions) if concepts is not None else None
        self.dropout = RowDropout(dropout)
        self.transformer = (
            Transformer(dimensions, layers=layers, heads=heads, hidden=hidden, dropout=dropout) if layers else None
        )
        self.score = None if layers else nn.Linear(dimensions, 1)

    def prepare(self, given: ImageInput) -> RegionRows:
        """Return the regions of given images.

        Raises:
            UsageError: there are no regions, or their vectors have another size.
        """
        if given.regions is None:
            raise UsageError("this model reads regions of a detector; the images have none")
        vocabulary = None if self.concepts is None else self.concepts.vocabulary
        return RegionRows.of(given.regions, vocabulary, features=self.features, most=self.max_regions)

    def forward(self, rows: RegionRows, training_pass: TrainingPass | None = None) -> Tensor:
        packing = Packing.of(rows.images)
        x_TD = self._regions(rows, packing)
        if self.concepts is not None:
            x_TD, packing = self._with_concepts(x_TD, rows, packing)
        x_TD = drop_tokens(self.dropout, x_TD, packing)
        if self.transformer is not None:
            return unit(pool(self.transformer(x_TD, packing), packing, mean_of))
        assert self.score is not None
        return unit(softmax_pool(x_TD, self.score(x_TD), packing))

    def _regions(self, rows: RegionRows, packing: Packing) -> Tensor:
        vectors = to_device(rows.vectors_of(packing.positions), self.region.weight.device)
        tokens: Tensor = self.region_norm(self.region(vectors))
        return (tokens + self._segment(REGION)) / 2

    def _with_concepts(self, region_TD: Tensor, rows: RegionRows, packing: Packing) -> tuple[Tensor, Packing]:
        """Return each image's regions followed by their labels, and their packing."""
        assert self.concepts is not None
        concept_TD = (self.concepts(rows, rows.labels_of(packing.positions)) + self._segment(CONCEPT)) / 2
        pairs = zip(blocks(region_TD, packing.groups), blocks(concept_TD, packing.groups), strict=True)
        both = [torch.cat(pair, dim=1).flatten(0, 1) for pair in pairs]
        groups = tuple((count, 2 * size) for count, size in packing.groups)
        return torch.cat([region_TD[:0], *both]), replace(packing, groups=groups)

    def _segment(self, kind: int) -> Tensor:
        segment: Tensor = self.segment_norm(self.segment.weight[kind])
        return segment
