"""Text tower over several texts of a document (Liu 2020, 5.1 and 6.2): one encoder a source, fused by attention.

Each source has its own subword encoder over one shared word table. Their N x d outputs are stacked to N x sources x d,
pass one single-head attention (eq. 2: no residual), and the concatenation goes through two affine maps, 4d-4d-d.

In training each source is left empty with probability `source_drop`, but for one, drawn from those the document has.
The draw's stream is keyed by seed, document id, epoch and step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.documents import Role
from schemas.errors import UsageError
from training.config import MultiSourceConfig
from training.data.documents import HeldSplit
from training.data.ragged import Bool, Int64, Ragged
from training.data.streams import stream
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, TextInput, Tower, TrainingPass, Workers, unit
from training.towers.packing import Packing
from training.towers.subword_attention import SelfAttention, SubwordEmbedding, SubwordEncoder, SubwordRows
from training.towers.words import words_of


class Fuser(nn.Module):
    """N x sources x d -> N x d: `attention` (N 5.1, steps 2-5), or one of table 2: `max`, `add`, `neural-net`."""

    def __init__(self, config: MultiSourceConfig, dimensions: int) -> None:
        super().__init__()
        self.kind = config.fuser
        size = len(config.sources) * dimensions
        self.attention = None
        if self.kind == "attention":
            self.attention = SelfAttention(
                dimensions,
                heads=1,
                head_dimensions=config.head_dimensions,
                value_dimensions=dimensions,
                has_output=False,
            )
        is_affine = self.kind in ("attention", "neural-net")
        self.first = nn.Linear(size, size) if is_affine else None
        self.second = nn.Linear(size, dimensions) if is_affine else None

    def forward(self, stacked_NSD: Tensor) -> Tensor:
        count, sources, dimensions = stacked_NSD.shape
        if self.first is None or self.second is None:
            return stacked_NSD.amax(dim=1) if self.kind == "max" else stacked_NSD.sum(dim=1)
        flat_NF = stacked_NSD.reshape(count, sources * dimensions)
        if self.attention is not None:
            packing = Packing.of(Ragged.of([sources] * count))
            flat_NF = self.attention(stacked_NSD.reshape(count * sources, dimensions), packing).reshape(flat_NF.shape)
        fused_ND: Tensor = self.second(F.relu(self.first(flat_NF)))
        return F.relu(fused_ND) if self.kind == "neural-net" else fused_ND


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """N documents with a text for each of S sources.

    Attributes:
        sources: rows of each source, N each.
        is_present: N x S, whether the document has a text of that source.
        keys: N keys of random draws; () where none is made.
    """

    sources: tuple[SubwordRows, ...]
    is_present: Bool
    keys: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.is_present)

    def take(self, rows: Int64) -> SourceRows:
        return SourceRows(
            sources=tuple(source.take(rows) for source in self.sources),
            is_present=self.is_present[rows],
            keys=tuple(self.keys[row] for row in rows) if self.keys else (),
        )


class MultiSourceTower(Tower):
    """N documents with a text for each source -> N x d unit vectors; all sources share one word table."""

    def __init__(self, config: MultiSourceConfig, sizes: Sizes, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.embedding = SubwordEmbedding(config, sizes, vocabulary)
        self.sources = config.sources
        self.encoders = nn.ModuleDict({source: SubwordEncoder(config, sizes.dimensions) for source in config.sources})
        self.fuser = Fuser(config, sizes.dimensions)
        limits = {Role.BODY.value: config.body_words}
        self.limits = {source: limits.get(source, self.embedding.max_words) for source in config.sources}
        self.has_attention = config.attention
        self.source_drop = config.source_drop

    def initialise(self, split: HeldSplit, workers: Workers, seed: int) -> None:
        self.embedding.initialise(split, workers, seed)

    def prepare(self, given: TextInput) -> SourceRows:
        """Return the words of each source.

        Raises:
            UsageError: the texts are not given by source, or not by these.
        """
        if given.sources is None:
            raise UsageError(f"this model reads a text for each of {', '.join(self.sources)}; the texts have no roles")
        if any(len(row) != len(self.sources) for row in given.sources):
            raise UsageError(f"expected {len(self.sources)} texts a document: {', '.join(self.sources)}")
        columns = [
            TextInput(texts=[row[s] for row in given.sources], languages=given.languages)
            for s in range(len(self.sources))
        ]
        return SourceRows(
            sources=tuple(
                self.embedding.prepare(column, self.limits[source])
                for source, column in zip(self.sources, columns, strict=True)
            ),
            is_present=np.array([[bool(text.strip()) for text in row] for row in given.sources], bool).reshape(
                -1, len(self.sources)
            ),
            keys=tuple(given.keys),
        )

    def attended(self, given: TextInput) -> dict[str, list[tuple[str, ...]]]:
        columns = zip(*(given.sources or ()), strict=True) if self.has_attention else ()
        pairs = zip(self.sources, columns, strict=False)
        words = {source: words_of(column, self.limits[source]) for source, column in pairs}
        fused = {} if self.fuser.attention is None else {"sources": [self.sources] * len(given.texts)}
        return words | fused

    def forward(self, rows: SourceRows, training_pass: TrainingPass | None = None) -> Tensor:
        dropped = np.zeros_like(rows.is_present)
        if self.training and training_pass is not None and self.source_drop:
            dropped = drop_sources(rows.is_present, rows.keys, training_pass, probability=self.source_drop)
        encoded: list[Tensor] = []
        for place, name in enumerate(self.sources):
            source = rows.sources[place].blanked(dropped[:, place])
            packing = Packing.of(source.sentences)
            encoded.append(self.encoders[name](self.embedding(source, packing.positions), packing))
        return unit(self.fuser(torch.stack(encoded, dim=1)))


def drop_sources(is_present: Bool, keys: Sequence[str], training_pass: TrainingPass, *, probability: float) -> Bool:
    """Return N x S: which sources are dropped; of those a document has (all, if it has none), one drawn never is."""
    dropped = np.zeros_like(is_present)
    for row, key in enumerate(keys):
        draws = stream("source drop", training_pass.seed, key, training_pass.epoch, training_pass.step).random(
            1 + is_present.shape[1]
        )
        present = np.flatnonzero(is_present[row])
        candidates = present if len(present) else np.arange(is_present.shape[1])
        dropped[row] = draws[1:] < probability
        dropped[row, candidates[int(draws[0] * len(candidates))]] = False
    return dropped
