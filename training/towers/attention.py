"""What a tower attends to: the attention weights of its words, regions or sources, for towers that have any.

Every layer that attends keeps its weights while a tower encodes (`packing.recording`); the tower says which tokens they
belong to (`Tower.attended`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.towers.inputs import ImageInput, TextInput, Tower
from training.towers.packing import Weights


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention over L tokens of one row.

    Attributes:
        tokens: what is attended to: words, labels of regions, or sources; "" where there is none.
        layers: of each layer, heads x queries x L weights; they sum to 1 over the tokens.
    """

    tokens: tuple[str, ...]
    layers: tuple[Weights, ...]

    @property
    def scores(self) -> Weights:
        """Return L scores that sum to 1: the mean over layers, heads and queries (Liu 2020, figure 8)."""
        scores: Weights = np.mean([layer.mean(axis=(0, 1)) for layer in self.layers], axis=0)
        return scores


def attended_in(
    tower: Tower, given: TextInput | ImageInput, layers: Sequence[Sequence[Weights]]
) -> list[Mapping[str, Attention]]:
    """Return what each row attended to while `layers` were recorded, by name; empty: to nothing.

    The names are `words`; `regions` for an image, whose regions are followed by their labels where the tower reads
    both; or each source (its words) and `sources` (the sources themselves).
    """
    tokens = tower.attended(given) if layers else {}
    names = list(tokens) if len(tokens) > 1 else list(tokens) * len(layers)
    named = list(zip(names, layers, strict=True)) if tokens else []

    def of_row(row: int) -> dict[str, Attention]:
        own = {name: tuple(layer[row] for of, layer in named if of == name) for name in tokens}
        return {name: Attention(tokens[name][row], weights) for name, weights in own.items()}

    return [of_row(row) for row in range(len(layers[0]))] if named else []
