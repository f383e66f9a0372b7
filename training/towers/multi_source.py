"""Text towers of Liu 2020 over words with their n-grams: of one text (4.3), of several of a document (5.1, 6.2).

subword-attention   self-attention with residual, point-wise layers, max pool. Neither position nor mask is used
                    (4.3.2); the point-wise CNN is two affine maps token by token (4.3.3).
multi-source        such an encoder for each source over one shared word table. Their N x d outputs are stacked to N x
                    sources x d, which a fuser makes one vector (table 2 and 5.1). In training each source is left empty
                    with probability `source_drop`, but for one, drawn from those the document has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.configs import PositiveInt, Probability, require
from schemas.documents import Role
from schemas.messages import UsageError
from schemas.plugins import FUSERS, Group
from training.data.ragged import Bool, Int64, Ragged
from training.parts import Needs, PartSettings, require_roles
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Packing, SelfAttention, Sizes, TextInput, Tower, largest_of, pool, unit
from training.towers.words import SubwordRows, SubwordsSettings, SubwordTower


class Fuser(nn.Module):
    """N x S x d vectors of S sources -> N x d."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuserSettings(PartSettings, ABC):
    """Settings that every fuser has."""

    group: ClassVar[Group] = FUSERS
    part: ClassVar[str] = "text.fuser"

    @abstractmethod
    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        """Return the fuser with random weights.

        Args:
            sources: S.
            dimensions: d.
            head_dimensions: size of an attention head of the text tower.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSettings(FuserSettings):
    """N table 2: the sum over the sources."""

    name: str = "add"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        return AddFuser()


class AddFuser(Fuser):
    """N x S x d -> N x d."""

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        return stacked_NSD.sum(dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxSettings(FuserSettings):
    """N table 2: the largest value of each number over the sources."""

    name: str = "max"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        return MaxFuser()


class MaxFuser(Fuser):
    """N x S x d -> N x d."""

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        return stacked_NSD.amax(dim=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeuralNetSettings(FuserSettings):
    """N table 2: two affine maps, each with ReLU."""

    name: str = "neural-net"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        return NeuralNetFuser(sources * dimensions, dimensions)


class NeuralNetFuser(Fuser):
    """N x S x d -> N x d."""

    def __init__(self, size: int, dimensions: int) -> None:
        super().__init__()
        self.first = nn.Linear(size, size)
        self.second = nn.Linear(size, dimensions)

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(stacked_NSD.flatten(1)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSettings(FuserSettings):
    """N 5.1: attention over the sources (eq. 2, without residual)."""

    name: str = "attention"

    def build(self, *, sources: int, dimensions: int, head_dimensions: int) -> Fuser:
        return AttentionFuser(sources, dimensions, head_dimensions)


class AttentionFuser(Fuser):
    """N x S x d -> N x d."""

    def __init__(self, sources: int, dimensions: int, head_dimensions: int) -> None:
        super().__init__()
        self.attention = SelfAttention(
            dimensions, heads=1, head_dimensions=head_dimensions, value_dimensions=dimensions, has_output=False
        )
        self.first = nn.Linear(sources * dimensions, sources * dimensions)
        self.second = nn.Linear(sources * dimensions, dimensions)

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        count, sources, dimensions = stacked_NSD.shape
        packing = Packing.of(Ragged.of([sources] * count))
        mixed = self.attention(stacked_NSD.reshape(count * sources, dimensions), packing)
        fused_ND: Tensor = self.second(F.relu(self.first(mixed.reshape(count, sources * dimensions))))
        return fused_ND


@dataclass(frozen=True, slots=True, kw_only=True)
class SubwordAttentionSettings(SubwordsSettings):
    """N 4.3: words with their n-grams, self-attention, point-wise layers, max pool.

    Attributes:
        heads: attention heads (N: 6).
        head_dimensions: size of a head (N: 64).
        hidden_dimensions: width between the two point-wise layers (N: 2048).
        attention: whether there is attention (ablation N table 1).
    """

    name: str = "subword-attention"
    heads: PositiveInt = 6
    head_dimensions: PositiveInt = 64
    hidden_dimensions: PositiveInt = 2048
    attention: bool = True

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return SubwordAttentionTower(self, sizes, vocabulary)


class SubwordEncoder(nn.Module):
    """T x w packed word vectors -> N x d (not yet of unit length)."""

    def __init__(self, config: SubwordAttentionSettings, dimensions: int) -> None:
        super().__init__()
        size = config.word_dimensions
        self.dropout = nn.Dropout(config.dropout)
        self.attention = None
        if config.attention:
            self.attention = SelfAttention(size, heads=config.heads, head_dimensions=config.head_dimensions)
        self.widen = nn.Linear(size, config.hidden_dimensions)
        self.narrow = nn.Linear(config.hidden_dimensions, dimensions)

    def forward(self, x_TE: Tensor, packing: Packing) -> Tensor:
        x_TE = self.dropout(x_TE)
        if self.attention is not None:
            x_TE = self.attention(x_TE, packing) + x_TE
        return pool(self.narrow(F.relu(self.widen(x_TE))), packing, largest_of)


class SubwordAttentionTower(SubwordTower):
    """N sentences -> N x d unit vectors."""

    own_encoder = "encoder"

    def __init__(self, config: SubwordAttentionSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.encoder = SubwordEncoder(config, sizes.dimensions)

    def forward(self, rows: SubwordRows) -> Tensor:
        packing = Packing.of(rows.sentences)
        return unit(self.encoder(self.embedding(rows, packing.positions), packing))


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiSourceSettings(SubwordAttentionSettings):
    """N 5.1: a subword encoder for each of several texts of a document, fused to one vector.

    Attributes:
        sources: roles that are fused.
        fuser: how: `attention`; of N table 2 also `max`, `add`, `neural-net`.
        body_words: number of words of a `body` that are read (N states no limit); `max_words` applies to other sources.
        source_drop: probability that a source is dropped in training; one is always kept (N 6.2: 0.3).
    """

    name: str = "multi-source"
    sources: tuple[str, ...] = (Role.HEADLINE.value, Role.LEAD.value, Role.CAPTION.value, Role.BODY.value)
    fuser: Annotated[FuserSettings, FUSERS] = field(default_factory=AttentionSettings)
    body_words: PositiveInt = 1000
    source_drop: Probability = 0.3

    def __post_init__(self) -> None:
        SubwordAttentionSettings.__post_init__(self)
        require_roles(self.sources, field="text.sources")
        require(bool(self.sources), field="text.sources", value=self.sources, rule="expected at least one role")

    @property
    def needs(self) -> Needs:
        return super(MultiSourceSettings, self).needs | Needs(sources=self.sources)

    def build(self, sizes: Sizes, vocabulary: Vocabulary | None) -> Tower:
        return MultiSourceTower(self, sizes, vocabulary)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """N documents with a text for each of S sources.

    Attributes:
        sources: rows of each source, N each.
        is_present: N x S, whether the document has a text of that source.
    """

    sources: tuple[SubwordRows, ...]
    is_present: Bool

    def __len__(self) -> int:
        return len(self.is_present)

    def take(self, rows: Int64) -> SourceRows:
        return SourceRows(
            sources=tuple(source.take(rows) for source in self.sources),
            is_present=self.is_present[rows],
        )


class MultiSourceTower(SubwordTower):
    """N documents with a text for each source -> N x d unit vectors; all sources share one word table."""

    source_encoders, new_modules = "encoders", ("fuser",)

    def __init__(self, config: MultiSourceSettings, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__(config, sizes, vocabulary)
        self.sources = config.sources
        self.encoders = nn.ModuleDict({source: SubwordEncoder(config, sizes.dimensions) for source in config.sources})
        self.fuser = config.fuser.build(
            sources=len(config.sources), dimensions=sizes.dimensions, head_dimensions=config.head_dimensions
        )
        limits = {Role.BODY.value: config.body_words}
        self.limits = {source: limits.get(source, self.embedding.max_words) for source in config.sources}
        self.source_drop = config.source_drop

    def prepare(self, inputs: TextInput) -> SourceRows:  # type: ignore[override]
        """Return the words of each source.

        Raises:
            UsageError: the texts are not given by source, or not by these.
        """
        if inputs.sources is None:
            raise UsageError(
                f"this model reads one text for each of {', '.join(self.sources)}; give each text its role"
            )
        if any(len(row) != len(self.sources) for row in inputs.sources):
            raise UsageError(f"expected {len(self.sources)} texts a document: {', '.join(self.sources)}")
        columns = [
            TextInput(texts=[row[s] for row in inputs.sources], languages=inputs.languages)
            for s in range(len(self.sources))
        ]
        return SourceRows(
            sources=tuple(
                self.embedding.prepare(column, self.limits[source])
                for source, column in zip(self.sources, columns, strict=True)
            ),
            is_present=np.array([[bool(text.strip()) for text in row] for row in inputs.sources], bool).reshape(
                -1, len(self.sources)
            ),
        )

    def forward(self, rows: SourceRows) -> Tensor:
        dropped = np.zeros_like(rows.is_present)
        if self.training and self.source_drop:
            dropped = drop_sources(rows.is_present, self.source_drop)
        encoded: list[Tensor] = []
        for name, source_rows, is_dropped in zip(self.sources, rows.sources, dropped.T, strict=True):
            source = source_rows.blanked(is_dropped)
            packing = Packing.of(source.sentences)
            encoded.append(self.encoders[name](self.embedding(source, packing.positions), packing))
        return unit(self.fuser(torch.stack(encoded, dim=1)))


def drop_sources(is_present: Bool, probability: float) -> Bool:
    """Return N x S: which sources are dropped; of those a document has (all, if it has none), one drawn never is.

    torch's generator draws, which the loop seeds for each batch.
    """
    draws, choices = (torch.rand(shape).numpy() for shape in (is_present.shape, (len(is_present),)))
    dropped: Bool = draws < probability
    for row, choice in enumerate(choices):
        candidates = np.flatnonzero(is_present[row] | ~is_present[row].any())
        dropped[row, candidates[int(choice * len(candidates))]] = False
    return dropped
