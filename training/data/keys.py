"""64-bit keys of content hashes and of sets, computed by array and the same on every machine.

Two different sets have one key with a chance of 2^-64: among a hundred million image sets, one pair in 3,700 corpora.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from training.data.ragged import Ragged, UInt64

DIGITS = 16  # hexadecimal, of 64 bits


def hash_keys(hashes: pa.ChunkedArray | pa.StringArray) -> UInt64:
    """Return N keys: the first 16 hexadecimal digits of each content hash, as a number."""
    digits = pc.utf8_slice_codeunits(hashes, 0, DIGITS)
    return np.frombuffer(bytes.fromhex("".join(digits.to_pylist())), ">u8").astype(np.uint64)


def set_keys(keys: UInt64, sets: Ragged) -> UInt64:
    """Return S keys, one a set of the N given: the same for the same different members, in any order."""
    order = np.lexsort((keys, sets.owners))
    owners, keys = sets.owners[order], keys[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = (owners[1:] != owners[:-1]) | (keys[1:] != keys[:-1])
    sums = np.zeros(len(sets), np.uint64)
    np.add.at(sums, owners[is_new], _mixed(keys[is_new]))
    return _mixed(sums)


def _mixed(values: UInt64) -> UInt64:
    """Return every number with each of its bits spread over all: a step of SplitMix64 (Steele et al. 2014)."""
    state = values + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
