"""The cut that fits given codes: which band each bit is in."""

import numpy as np
import pytest

from pipelines.dedupe.bands import Bands
from pipelines.dedupe.fitted_bands import cheapest_bands, dependence_of_bits, spread_bits


def equal_fours(count: int) -> np.ndarray:
    """Return codes of 64 bits in 16 fours of equal bits: 0-3, 4-7, .."""
    values = np.random.default_rng(0).integers(0, 2**16, count)
    bits = np.repeat((values[:, None] >> np.arange(16)) & 1, 4, axis=1).astype(np.uint8)
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def bits_of_bands(bands: Bands) -> list[tuple[int, ...]]:
    return [bands.order[first : first + bands.width(band)] for band, first in enumerate(bands.edges[:-1])]


def test_equal_bits_go_into_different_bands() -> None:
    bands = spread_bits(Bands(bits=64, radius=3), dependence_of_bits(equal_fours(4096)))
    assert sorted(bands.order) == list(range(64))
    for band in bits_of_bands(bands):
        assert sorted(bit // 4 for bit in band) == list(range(16))


def test_of_bits_that_no_key_reads_are_those_that_repeat_others() -> None:
    """Bands of 64 bits are read up to 36: of 4 x 64 bits, half equal to their neighbour, 112 stay unread."""
    codes = np.random.default_rng(0).integers(0, 2**64, (4096, 4), dtype=np.uint64)
    codes[:, :2] &= np.uint64(0x5555555555555555)
    codes[:, :2] |= codes[:, :2] << np.uint64(1)
    bands = spread_bits(Bands(bits=256, radius=3), dependence_of_bits(codes))
    read = {bit for band in bits_of_bands(bands) for bit in band}
    assert len(read) == 4 * 36
    assert sum(bit < 128 for bit in set(range(256)) - read) == 112
    for band in bits_of_bands(bands):
        repeated = [bit // 2 for bit in band if bit < 128]
        assert len(repeated) == len(set(repeated))


def test_dependence_is_the_square_of_the_mean_product_of_bits() -> None:
    """By hand, bits as -1 and +1: bit 1 is bit 0, bit 2 agrees with them in 3 of 4 codes, bit 3 never changes."""
    dependence = dependence_of_bits(np.array([[0b0000], [0b0011], [0b0111], [0b0111]], np.uint64))
    assert dependence[:4, :4].tolist() == [
        [0, 1, 0.25, 0.25],
        [1, 0, 0.25, 0.25],
        [0.25, 0.25, 0, 0],
        [0.25, 0.25, 0, 0],
    ]


def test_fewer_codes_share_a_key() -> None:
    codes = np.unique(
        equal_fours(20_000) ^ (np.uint64(1) << np.arange(20_000, dtype=np.uint64) % np.uint64(64))[:, None]
    )
    fitted, fixed = cheapest_bands(codes[:, None], 3), Bands(bits=64, radius=3)

    def largest_bucket(bands: Bands) -> int:
        keys = [bands.keys(bands.permute(codes[:, None]), choice) for choice in range(4)]
        return max(int(np.unique(key, return_counts=True)[1].max()) for key in keys)

    assert largest_bucket(fitted) * 4 < largest_bucket(fixed)


@pytest.mark.parametrize("order", [(0,) * 64, tuple(range(63)), tuple(range(1, 65))])
def test_an_order_names_each_bit_once(order: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected an order of 64 bits"):
        Bands(bits=64, radius=3, order=order)
