"""64-bit keys of texts and of sets of them, computed by array and the same on every machine.

Two different sets have one key with a chance of 2^-64: among a hundred million image sets, one pair in 3,700 corpora.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from training.data.ragged import Ragged, UInt64

WORD_BYTES = 8
STEP = np.uint64(0x9E3779B97F4A7C15)


def text_keys(texts: Sequence[str] | pa.StringArray) -> UInt64:
    """Return N keys, one a text: its bytes, mixed eight at a time, and their number."""
    array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    if not len(array):
        return np.zeros(0, np.uint64)
    _, starts, data_buffer = array.buffers()
    offsets = np.frombuffer(starts, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", np.uint8)
    lengths = np.diff(offsets)
    keys = np.zeros(len(array), np.uint64)
    for length in np.unique(lengths).tolist():  # content hashes are all of one length
        rows = np.flatnonzero(lengths == length)
        words = -(-length // WORD_BYTES)
        padded = np.zeros((len(rows), words * WORD_BYTES), np.uint8)
        if len(rows) == len(array):
            padded[:, :length] = data[offsets[0] : offsets[-1]].reshape(-1, length)
        else:
            padded[:, :length] = data[offsets[rows, None] + np.arange(length)]
        keys[rows] = _mixed_rows(padded.view("<u8").astype(np.uint64, copy=False), length)
    return keys


def set_keys(keys: UInt64, sets: Ragged) -> UInt64:
    """Return S keys, one a set of the N given: the same for the same different members, in any order."""
    order = np.lexsort((keys, sets.owners))
    owners, keys = sets.owners[order], keys[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = (owners[1:] != owners[:-1]) | (keys[1:] != keys[:-1])
    found = np.zeros(len(sets), np.uint64)
    np.add.at(found, owners[is_new], mixed(keys[is_new]))
    return mixed(found)


def mixed(values: UInt64) -> UInt64:
    """Return every number with each of its bits spread over all: a step of SplitMix64 (Steele et al. 2014)."""
    return finalised(values + STEP)


def finalised(values: UInt64) -> UInt64:
    """Return what SplitMix64 makes of the states of its counter."""
    found = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def _mixed_rows(words: UInt64, length: int) -> UInt64:
    found = np.full(len(words), length, np.uint64)
    for column in words.T:
        found = mixed(found ^ column)
    return found
