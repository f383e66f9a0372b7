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
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.errors import UsageError
from training.config import MultiSourceConfig
from training.data.documents import HeldSplit
from training.data.ragged import Int64, Ragged
from training.data.streams import stream
from training.text.vocabulary import Vocabulary
from training.towers.inputs import Sizes, TextInput, Tower, TrainingPass, Workers, unit
from training.towers.packing import Packing
from training.towers.subword_attention import SelfAttention, SubwordEmbedding, SubwordEncoder, SubwordRows

Bool = npt.NDArray[np.bool_]


class Fuser(nn.Module):
    """N x sources x d -> N x d (N 5.1, steps 2-5)."""

    def __init__(self, sources: int, dimensions: int, *, head_dimensions: int) -> None:
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
        return self.second(F.relu(self.first(mixed.reshape(count, sources * dimensions))))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """N documents with a text for each of S sources.

    Attributes:
        sources: rows of each source, N each.
        is_present: N x S, whether the document has a text of that source.
        keys: N keys of random draws; () where none is made.
    """

    sources: tuple[SubwordRows, ...]
    is_present: npt.NDArray[np.bool_]
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
        self.embedding = SubwordEmbedding(config, vocabulary)
        self.sources = config.sources
        self.encoders = nn.ModuleDict({source: SubwordEncoder(config, sizes.dimensions) for source in config.sources})
        self.fuser = Fuser(len(config.sources), sizes.dimensions, head_dimensions=config.head_dimensions)
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
            sources=tuple(self.embedding.prepare(column) for column in columns),
            is_present=np.array([[bool(text.strip()) for text in row] for row in given.sources], bool).reshape(
                -1, len(self.sources)
            ),
            keys=tuple(given.keys),
        )

    def forward(self, rows: SourceRows, training_pass: TrainingPass | None = None) -> Tensor:
        dropped = np.zeros_like(rows.is_present)
        if self.training and training_pass is not None and self.source_drop:
            dropped = drop_sources(rows.is_present, rows.keys, training_pass, probability=self.source_drop)
        encoded: list[Tensor] = []
        for place, name in enumerate(self.sources):
            source = rows.sources[place].blanked(dropped[:, place])
            packing = Packing.of(source.sentences)
            encoded.append(self.encoders[name](self.embedding(source, packing), packing))
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
