"""Text tower over several texts of a document (Liu 2020, 5.1 and 6.2): one encoder a source, fused by attention.

Each source has its own subword encoder over one shared word table. Their N x d outputs are stacked to N x sources x d,
pass one single-head attention (eq. 2: no residual), and the concatenation goes through two affine maps, 4d-4d-d.

In training each source is left empty with probability `source_drop`, but for one, drawn from those the document has.
The draw's stream is keyed by seed, document id, epoch and step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.errors import UsageError
from training.data.ragged import Ragged
from training.data.streams import stream
from training.encoders.inputs import TextInput, TrainingPass
from training.encoders.linear import unit
from training.encoders.packing import Packing
from training.encoders.rows import SourceRows
from training.encoders.subword_attention import SelfAttention, SubwordEmbedding, SubwordEncoder

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


class MultiSourceTower(nn.Module):
    """N documents with a text for each source -> N x d unit vectors.

    Args:
        embedding: word table that all sources share.
        encoders: of the sources, by role.
        dimensions: d.
        head_dimensions: d_k of the fuser's attention.
        source_drop: see above (N: 0.3).
    """

    def __init__(
        self,
        embedding: SubwordEmbedding,
        encoders: dict[str, SubwordEncoder],
        dimensions: int,
        *,
        head_dimensions: int,
        source_drop: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.sources = tuple(encoders)
        self.encoders = nn.ModuleDict(encoders)
        self.fuser = Fuser(len(encoders), dimensions, head_dimensions=head_dimensions)
        self.source_drop = source_drop

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
