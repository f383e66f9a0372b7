"""Fingerprints by name: known values, and the parts of findimagedupes by independent calculations."""

import math

import imagehash
import numpy as np
import pytest
import scipy.fft
from PIL import Image
from scipy import ndimage

from pipelines.images.inspect import fingerprint_image, low_frequencies, smooth_grid
from pipelines.settings import FingerprintName


def picture(width: int = 160, height: int = 120, *, seed: int = 0) -> Image.Image:
    """Return a smooth made-up picture: blobs of colour, the same at every size."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    y, x = y / height, x / width
    channels = []
    for _ in range(3):
        waves = sum(
            weight * np.cos(math.pi * (u * x + phase)) * np.cos(math.pi * (v * y + phase))
            for u, v, weight, phase in zip(
                *random.uniform([[0], [0], [-1], [0]], [[6], [6], [1], [2]], (4, 12)), strict=True
            )
        )
        channels.append(255 * (waves - waves.min()) / np.ptp(waves))
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))


def distance(first: str, second: str) -> int:
    return (int(first, 16) ^ int(second, 16)).bit_count()


@pytest.mark.parametrize("name", list(FingerprintName))
def test_a_code_has_the_length_its_name_says(name: FingerprintName) -> None:
    code = fingerprint_image(picture(), name)
    assert len(code) * 4 == (256 if name.endswith("-256") else 64)
    assert code == code.lower()
    assert code == fingerprint_image(picture(), name)


@pytest.mark.parametrize("name", list(FingerprintName))
def test_a_smaller_copy_is_nearer_than_another_picture(name: FingerprintName) -> None:
    large = picture(640, 480)
    code = fingerprint_image(large, name)
    copy = fingerprint_image(large.resize((320, 240)), name)
    bits = 4 * len(code)
    assert distance(code, copy) <= bits // 10
    assert distance(code, fingerprint_image(picture(640, 480, seed=1), name)) > bits // 5


def test_the_grid_is_a_mean_filter_sampled() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (75, 200), dtype=np.uint8)
    filtered = ndimage.uniform_filter(grey.astype(np.float64), size=7, mode="nearest")
    rows, columns = ([place * size // 32 for place in range(32)] for size in grey.shape)
    np.testing.assert_allclose(smooth_grid(grey), filtered[np.ix_(rows, columns)], atol=1e-9)


def test_a_grid_smaller_than_32_repeats_pixels() -> None:
    assert smooth_grid(np.full((16, 20), 9, np.uint8)).tolist() == [[9.0] * 32] * 32


def test_frequencies_are_those_of_the_orthonormal_dct() -> None:
    grid = np.random.default_rng(1).uniform(0, 255, (32, 32))
    found = low_frequencies(grid)
    np.testing.assert_allclose(found, scipy.fft.dctn(grid, norm="ortho")[1:9, 1:9], atol=1e-9)
    u, v = 3, 8  # by the sum itself
    total = sum(
        grid[y, x] * math.cos(math.pi * u * (2 * y + 1) / 64) * math.cos(math.pi * v * (2 * x + 1) / 64)
        for y in range(32)
        for x in range(32)
    )
    assert found[u - 1, v - 1] == pytest.approx(total * 2 / 32)


def test_findimagedupes_thresholds_at_the_median() -> None:
    """One strong wave: its bit is where pHash puts it, lowest frequency in the lowest bit; half of all bits are set."""
    y, x = np.mgrid[0:320, 0:320]
    for u, v in ((1, 1), (1, 2), (2, 1), (4, 7), (8, 8)):
        wave = np.cos(np.pi * u * (2 * y + 1) / 640) * np.cos(np.pi * v * (2 * x + 1) / 640)
        image = Image.fromarray((127.5 + 127 * wave).round().astype(np.uint8)).convert("RGB")
        code = int(fingerprint_image(image, FingerprintName.FINDIMAGEDUPES), 16)
        assert code >> (8 * (u - 1) + v - 1) & 1
        assert code.bit_count() == 32


def awkward_pictures() -> list[np.ndarray]:
    """Noise, one colour, ramps, a mirrored picture and a chequered one: frequencies that are 0 but for rounding."""
    random = np.random.default_rng(5)
    pictures = []
    for height, width in random.integers(1, 120, (12, 2)):
        noise = random.integers(0, 256, (height, width), np.uint8)
        mirrored = np.concatenate([noise, noise[::-1]])
        ramp = np.broadcast_to(np.linspace(0, 255, width).astype(np.uint8), (height, width))
        chequered = (np.indices((height, width)).sum(axis=0) // 7 % 2 * 255).astype(np.uint8)
        pictures += [noise, np.full_like(noise, noise[0, 0]), ramp, mirrored, mirrored.T, chequered]
    return pictures


@pytest.mark.parametrize(("name", "side"), [(FingerprintName.PHASH, 8), (FingerprintName.PHASH_256, 16)])
def test_phash_is_that_of_imagehash_bit_for_bit(name: FingerprintName, side: int) -> None:
    for levels in awkward_pictures():
        image = Image.fromarray(np.ascontiguousarray(levels)).convert("RGB")
        assert fingerprint_image(image, name) == str(imagehash.phash(image, hash_size=side))


KNOWN = {
    "phash": "ace8179ccadf8660",
    "findimagedupes": "a027b07df91cf40b",
    "phash-256": "ac00e80017ff9c00cfffdfff97fa73ed07aa73d002aa73dc02a0734407a073c1",
}


@pytest.mark.parametrize(("name", "expected"), KNOWN.items())
def test_known_values(name: str, expected: str) -> None:
    """What a name stands for never changes: these were computed once, on the day the name was given."""
    assert fingerprint_image(picture(), FingerprintName(name)) == expected
