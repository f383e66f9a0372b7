"""What a tower attends to while it encodes an input."""

from collections.abc import Mapping

import torch

from training.towers.attention import Attention, attended_in
from training.towers.inputs import ImageInput, TextInput, Tower
from training.towers.packing import recording


def attention_weights(tower: Tower, given: TextInput | ImageInput) -> list[Mapping[str, Attention]]:
    """Return what each row attends to, by name; empty: to nothing."""
    rows = tower.prepare(given)
    was_training = tower.training
    tower.eval()
    with torch.inference_mode(), recording() as layers:
        tower(rows)
    tower.train(was_training)
    return attended_in(tower, given, layers)
