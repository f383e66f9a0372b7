"""NASNet mobile against numbers of the reference implementation, with the same made-up weights."""

import numpy as np
import pytest
import torch
from torch import Tensor

from networks.nasnet_mobile import NasnetMobile

# `pretrainedmodels` 0.7.4, nasnetamobile(num_classes=1000, pretrained=None), its state filled by `made_up`, looking at
# `picture`: length of the mean over places after the last ReLU, its values at 0, 211, ..., 1055, and five logits.
LENGTH = 36.8661
VALUES = [1.15432, 1.19243, 0.174701, 0.0718816, 0, 0.877324]
LOGITS = [1.56889, -6.59199, 3.30629, -1.06354, -0.832777]


def made_up(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights for every tensor of a network, in the order of names: they keep the scale of what they look at."""
    generator = torch.Generator().manual_seed(3)
    filled = {}
    for name in sorted(state):
        shape = state[name].shape
        if name.endswith("num_batches_tracked"):
            filled[name] = state[name]
        elif len(shape) == 4:
            filled[name] = torch.randn(shape, generator=generator) * (1 / shape[1:].numel()) ** 0.5
        elif name.endswith(("running_var", "bn.weight", "bn_sep_1.weight", "bn_sep_2.weight")):
            filled[name] = torch.rand(shape, generator=generator) + 0.5
        else:
            filled[name] = torch.randn(shape, generator=generator) * 0.1
    return filled


def picture() -> Tensor:
    return torch.rand((1, 3, 224, 224), generator=torch.Generator().manual_seed(4)) * 2 - 1


@pytest.fixture(scope="module")
def network() -> NasnetMobile:
    network = NasnetMobile().eval()
    network.load_state_dict(made_up(network.state_dict()))
    return network


def test_it_has_the_published_number_of_parameters() -> None:
    assert sum(parameter.numel() for parameter in NasnetMobile().parameters()) == 5_289_978


def test_it_computes_what_the_reference_does(network: NasnetMobile) -> None:
    with torch.inference_mode():
        cells = network.features(picture()).relu()
        logits = network.last_linear(cells.mean((2, 3)))
    assert cells.shape == (1, 1056, 7, 7)
    vector = cells.mean((2, 3))[0].numpy()
    np.testing.assert_allclose(np.linalg.norm(vector), LENGTH, rtol=1e-3)
    np.testing.assert_allclose(vector[::211], VALUES, rtol=1e-3, atol=1e-3 * LENGTH / 32)
    np.testing.assert_allclose(logits[0, ::200], LOGITS, rtol=1e-3, atol=1e-3 * LENGTH)


@pytest.mark.parametrize("side", [224, 256, 331])
def test_other_sizes_pass(network: NasnetMobile, side: int) -> None:
    """Odd and even sides of every map: SAME padding halves each, rounding up."""
    with torch.inference_mode():
        places = network.features(torch.zeros(1, 3, side, side))
    halved = (side - 3) // 2 + 1  # the first convolution is not padded
    for _ in range(4):
        halved = (halved + 1) // 2
    assert places.shape[2:] == (halved, halved)
