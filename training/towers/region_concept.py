"""The towers of Li 2022: transformers over words (eq. 6-7), and over regions and their labels, "concepts" (eq. 8-10).

Both pool by the mean. An image is tokens of two kinds:

    region   (LayerNorm(W_V f + b_V) + LayerNorm(segment 0)) / 2
    concept  (LayerNorm(W_T w + b_T) + LayerNorm(segment 1)) / 2,   w: mean word vector of the label

Word vectors, and W_T where the text tower has it (`transformer`), are the text tower's own modules: trained by both.
The ablations of table 3 leave out the concepts, or the transformer (softmax pooling with weights of one linear layer),
or both. An image in which nothing was detected is one blank region.

A layer over packed tokens (Vaswani 2017) has attention and feed-forward, each with residual and layer normalisation
after it, equal to `torch.nn.TransformerEncoderLayer` on padded rows. Attention weights are not dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.configs import PositiveInt
from schemas.messages import ConfigError, UsageError
from training.data.documents import RegionBank
from training.data.ragged import Float32, Floats, Int64, Ragged, to_device
from training.parts import Needs
from training.text.vocabulary import Vocabulary
from training.towers.inputs import (
    ImageInput,
    Packing,
    Sizes,
    Tower,
    attend,
    blocks,
    mean_of,
    pool,
    required,
    softmax_pool,
    unit,
)
from training.towers.settings import ImageTowerSettings
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
        positions_TE = self.position(to_device(packing.steps, self.embedding.weight.device))
        x_TE = self.dropout(self.norm(self.vectors_at(rows, packing.positions) + positions_TE))
        return unit(pool(self.transformer(self.project(x_TE), packing), packing, mean_of))


REGION, CONCEPT = 0, 1
MAX_LABEL_WORDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionConceptSettings(ImageTowerSettings):
    """L eq. 8-10: regions and their labels as tokens of a transformer, mean pool.

    Attributes:
        max_regions: regions of an image that are read, the most certain (L: 36).
        concepts: whether the labels of regions are read, too (ablation L table 3).
        transformer: whether regions pass through a transformer; without: softmax pooling (ablation L table 3).
        layers: transformer layers (L: 3).
        heads: attention heads (L: 8).
        hidden_dimensions: width of the inner layer of a feed-forward block (open in L).
    """

    name: str = "region-concept"
    max_regions: PositiveInt = 36
    concepts: bool = True
    transformer: bool = True
    layers: PositiveInt = 3
    heads: PositiveInt = 8
    hidden_dimensions: PositiveInt = 2048

    @property
    def needs(self) -> Needs:
        return Needs(regions=True, labels=self.concepts)

    @property
    def divisor(self) -> int:
        return self.heads

    def build(self, sizes: Sizes, text: Tower) -> Tower:
        return RegionConceptTower(self, sizes, text)


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
        different, indexes = np.unique(labels, return_inverse=True)
        words = to_device(rows.label_words[rows.different.positions(different)].astype(np.int64), device)
        starts = to_device(rows.different.take(different).offsets[:-1], device)
        tokens: Tensor = self.norm(self.project(F.embedding_bag(words, self.embedding.weight, starts, mode="mean")))
        return tokens.index_select(0, to_device(indexes, device))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRows:
    """Regions of N images with their labels.

    Attributes:
        vectors: R x f bank of region vectors.
        labels: R numbers of different labels; 0 is the label of the blank region.
        label_words: word numbers, label by label.
        different: which of the label words are of which different label.
        regions: rows of the bank, image by image; -1 is the blank region (a zero vector).
        images: which of the regions are of which image, each of at least one.
    """

    vectors: Floats
    labels: npt.NDArray[np.int32]
    label_words: npt.NDArray[np.int32]
    different: Ragged
    regions: Int64
    images: Ragged

    @classmethod
    def of(cls, bank: RegionBank, vocabulary: Vocabulary | None, *, features: int, most: int) -> RegionRows:
        """Return the `most` most certain regions of each image (of equals, the earlier); without any, a blank one.

        Without a vocabulary labels are not read.

        Raises:
            UsageError: the regions' vectors have another size than `features`.
        """
        if len(bank.vectors) and bank.vectors.shape[1] != features:
            raise UsageError(f"expected region vectors of {features} numbers, found {bank.vectors.shape[1]}")
        numbers: dict[str, int] = {"": 0}
        labels = np.zeros(len(bank.labels), np.int32)
        if vocabulary is not None:
            labels = np.array([numbers.setdefault(label, len(numbers)) for label in bank.labels], np.int32)
        words, different = np.zeros(0, np.int32), Ragged.of([0] * len(numbers))
        if vocabulary is not None:
            words, different = vocabulary.encode(list(numbers), max_words=MAX_LABEL_WORDS)
        chosen = [_most_certain(bank, image, most) for image in range(len(bank.images))]
        return cls(
            vectors=bank.vectors if len(bank.vectors) else np.zeros((0, features), np.float16),
            labels=labels,
            label_words=words,
            different=different,
            regions=np.concatenate([np.zeros(0, np.int64), *chosen]),
            images=Ragged.of([len(part) for part in chosen]),
        )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Int64) -> RegionRows:
        return replace(self, regions=self.regions[self.images.positions(rows)], images=self.images.take(rows))

    def vectors_of(self, positions: Int64) -> Float32:
        """Return T x f vectors, float32, of the regions at some positions of `regions`."""
        regions = self.regions[positions]
        vectors = np.zeros((len(regions), self.vectors.shape[1]), np.float32)
        vectors[regions >= 0] = self.vectors[regions[regions >= 0]]
        return vectors

    def labels_of(self, positions: Int64) -> Int64:
        """Return T label numbers of the regions at some positions of `regions`."""
        regions = self.regions[positions]
        labels = np.zeros(len(regions), np.int64)
        labels[regions >= 0] = self.labels[regions[regions >= 0]]
        return labels


class RegionConceptTower(Tower):
    """N images with regions of f numbers (L: 2048) -> N x d unit vectors.

    Raises:
        ConfigError: there are no regions, or the text tower has no word vectors for their labels.
    """

    def __init__(self, config: RegionConceptSettings, sizes: Sizes, text: Tower) -> None:
        super().__init__()
        self.features = required(sizes.region, tower="image.name = 'region-concept'", what="regions in the data set")
        self.max_regions = config.max_regions
        if config.concepts and not isinstance(text, WordTower):
            raise ConfigError("image.concepts = True: the text tower has no word vectors for the labels of regions")
        dimensions = sizes.dimensions
        self.region = nn.Linear(self.features, dimensions)
        self.region_norm = nn.LayerNorm(dimensions)
        self.segment = nn.Embedding(2, dimensions)
        self.segment_norm = nn.LayerNorm(dimensions)
        self.concepts = Concepts(text, dimensions) if config.concepts and isinstance(text, WordTower) else None
        self.dropout = nn.Dropout(config.dropout)
        sizes_of_layers = {"layers": config.layers, "heads": config.heads, "hidden": config.hidden_dimensions}
        self.transformer = (
            Transformer(dimensions, **sizes_of_layers, dropout=config.dropout) if config.transformer else None
        )
        self.score = None if config.transformer else nn.Linear(dimensions, 1)

    def prepare(self, inputs: ImageInput) -> RegionRows:
        """Return the regions of given images.

        Raises:
            UsageError: there are no regions, or their vectors have another size.
        """
        if inputs.regions is None:
            raise UsageError("this model reads regions of a detector; the images have none")
        vocabulary = None if self.concepts is None else self.concepts.vocabulary
        return RegionRows.of(inputs.regions, vocabulary, features=self.features, most=self.max_regions)

    def forward(self, rows: RegionRows) -> Tensor:
        packing = Packing.of(rows.images)
        x_TD = self._regions(rows, packing)
        if self.concepts is not None:
            x_TD, packing = self._with_concepts(x_TD, rows, packing)
        x_TD = self.dropout(x_TD)
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


def _most_certain(bank: RegionBank, image: int, most: int) -> Int64:
    rows = bank.images.rows(image)
    if rows.start == rows.stop:
        return np.array([-1], np.int64)
    order = np.argsort(-bank.scores[rows], kind="stable")[:most]
    kept: Int64 = np.sort(order).astype(np.int64) + rows.start
    return kept
