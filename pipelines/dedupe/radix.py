"""Sorting whole numbers of few bits by radix: 16 bits at a time, which is what numpy sorts in linear time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.dedupe.bands import Indices

DIGIT_BITS = 16

Keys = npt.NDArray[np.unsignedinteger]


def sort_keys(keys: npt.NDArray[np.integer], *, bits: int) -> tuple[Indices, Keys]:
    """Return the stable order of N keys of so many bits, not negative, and the keys in it, as short as they fit."""
    narrow: Keys = keys.astype(np.min_scalar_type((1 << bits) - 1))
    order = np.argsort(_digits(narrow, 0), kind="stable").astype(np.int64, copy=False)
    for shift in range(DIGIT_BITS, bits, DIGIT_BITS):
        order = order[np.argsort(_digits(narrow, shift)[order], kind="stable")]
    return order, narrow[order]


def runs(ordered: Keys) -> Indices:
    """Return R x 2: where each run of two or more equal keys starts and ends."""
    is_new = np.append(np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1])
    starts = np.flatnonzero(is_new)
    ends = np.append(starts[1:], len(ordered))
    shared = np.flatnonzero(ends - starts > 1)
    return np.stack([starts[shared], ends[shared]], axis=1)


def _digits(keys: Keys, shift: int) -> npt.NDArray[np.uint16]:
    """Return 16 bits of each key, from bit `shift` on."""
    return (keys >> shift).astype(np.uint16)
