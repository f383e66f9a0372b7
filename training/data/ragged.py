"""Rows of several sets, one set after the other, and where each set begins: the one carrier of offsets.

A set is the sentences or the images of a document, the words of a sentence, the regions of an image. Offsets and the
index arrays made of them are numpy's; `to_device` takes them to where a step computes. Sets also have 64-bit keys, the
same on every machine: two different sets have one key with a chance of 2^-64, among a hundred million image sets one
pair in 3,700 corpora.

A choice is what sentences and images of some documents take part in a step. An objective makes it; before it, at most
some rows of a document can be drawn (Hessel 2019, suppl. 2: ten of each). A choice looks to an objective like a set of
documents that hold the chosen rows alone, so that choices can be made of choices. The draw's stream is keyed by seed,
document id, epoch and step.

Everything random in the training core is drawn from a stream whose key says what it is for (`("batches", seed,
epoch)`): the same key gives the same numbers on every machine, for any number of workers. So no generator has a state
that must be saved, passed on or kept in step between workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from schemas.messages import UsageError
from schemas.versions import canonical_json

Bool = npt.NDArray[np.bool_]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
UInt64 = npt.NDArray[np.uint64]
StreamKey = str | int


def stream(*key: StreamKey) -> np.random.Generator:
    """Return the generator of a key: Philox under the SHA-256 of the key's canonical JSON."""
    return np.random.Generator(np.random.Philox(key=np.frombuffer(_digest(key)[:16], dtype=np.uint64)))


def seed_of(*key: StreamKey) -> int:
    """Return the seed of a key for a generator that takes one integer (torch's), in [0, 2^63)."""
    return int.from_bytes(_digest(key)[:8], "little") >> 1


@contextmanager
def seeded(device: torch.device, *key: StreamKey) -> Iterator[None]:
    """Make torch's random numbers inside depend on the key alone, and leave its generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed_of(*key))
        yield


def _digest(key: tuple[StreamKey, ...]) -> bytes:
    return hashlib.sha256(canonical_json(list(key)).encode()).digest()


def require_finite(values: npt.ArrayLike, what: str) -> None:
    """Raise a `UsageError` that names `what` unless all values are finite: NaN has no rank, so no score is right."""
    if not np.isfinite(values).all():
        raise UsageError(f"{what}: expected finite numbers, found NaN or infinity")


def unit_rows(vectors: Floats, dtype: type[np.floating[Any]] = np.float64) -> Floats:
    """Return n L2-normalised vectors; zero vectors stay zero.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    rows = np.asarray(vectors, dtype=dtype)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), dtype=dtype)


@dataclass(frozen=True, eq=False)
class Ragged:
    """How N rows are divided among S sets: those of set `s` are rows `offsets[s]` to `offsets[s + 1] - 1`.

    Attributes:
        offsets: S + 1 offsets, int64, from 0 to N.
    """

    offsets: Int64

    @classmethod
    def of(cls, counts: Sequence[int] | Int64) -> Ragged:
        """Return the division into sets of the given sizes."""
        return cls(np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(counts, np.int64), dtype=np.int64)]))

    @classmethod
    def joined(cls, parts: Iterable[Ragged]) -> Ragged:
        """Return the sets of several divisions, one division after the other."""
        return cls.of(np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[slice]:
        """Yield the rows of each set."""
        return (self.rows(number) for number in range(len(self)))

    @cached_property
    def counts(self) -> Int64:
        """Return the S sizes of the sets."""
        return np.diff(self.offsets)

    @property
    def total(self) -> int:
        """Return the number of rows of all sets."""
        return int(self.offsets[-1])

    @property
    def owners(self) -> Int64:
        """Return the N numbers of the sets that the rows belong to."""
        return np.repeat(np.arange(len(self)), self.counts)

    @property
    def numbers(self) -> Int64:
        """Return the N numbers of the rows in their sets, from 0."""
        return np.arange(self.total, dtype=np.int64) - np.repeat(self.offsets[:-1], self.counts)

    def rows(self, number: int) -> slice:
        """Return the rows of a set."""
        return slice(int(self.offsets[number]), int(self.offsets[number + 1]))

    def take(self, sets: Int64) -> Ragged:
        """Return the division of some sets' rows, one set after the other."""
        return Ragged.of(self.sizes(sets))

    def sizes(self, sets: Int64) -> Int64:
        """Return how many rows some sets have; the other sets' are not looked at, however many there are."""
        return self.offsets[sets + 1] - self.offsets[sets]

    def positions(self, sets: Int64) -> Int64:
        """Return the rows of some sets, one set after the other.

        offsets 0 2 5 6, sets 2 0  ->  5 | 0 1
        """
        taken = self.take(sets)
        return np.repeat(self.offsets[sets], taken.counts) + taken.numbers


def to_device(values: npt.NDArray[np.generic[Any]], device: torch.device) -> Tensor:
    """Return an array as a tensor on a device, without waiting for it; on a CPU they share their memory.

    A plain `.to("cuda")` waits until the device has done all that was launched before, which a step may not. The copy
    is made from page-locked memory, which PyTorch keeps until the device has read it.
    """
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


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


class Documents(Protocol):
    """Documents by id, with the division of their sentences and images among them."""

    @property
    def ids(self) -> tuple[str, ...]: ...

    @property
    def sentences(self) -> Ragged: ...

    @property
    def images(self) -> Ragged: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Some sentences and images of B documents, in the order of those documents.

    Attributes:
        ids: B document ids.
        sentences: which of the chosen sentences are of which document.
        images: which of the chosen images are of which document.
        sentence_rows: the chosen sentences' rows among those that were chosen from.
        image_rows: the chosen images' rows among those that were chosen from.
    """

    ids: tuple[str, ...]
    sentences: Ragged
    images: Ragged
    sentence_rows: Int64
    image_rows: Int64

    @classmethod
    def of(cls, documents: Documents, chosen: Int64, sentences: Sequence[Int64], images: Sequence[Int64]) -> Choice:
        """Return the choice of some rows, given as an array for each of the chosen documents."""
        return cls(
            ids=tuple(documents.ids[document] for document in chosen),
            sentences=Ragged.of([len(part) for part in sentences]),
            images=Ragged.of([len(part) for part in images]),
            sentence_rows=np.concatenate([np.zeros(0, np.int64), *sentences]),
            image_rows=np.concatenate([np.zeros(0, np.int64), *images]),
        )


def choose_all(documents: Documents, chosen: Int64) -> Choice:
    """Return every sentence and every image of some documents."""
    return Choice(
        ids=tuple(documents.ids[document] for document in chosen),
        sentences=documents.sentences.take(chosen),
        images=documents.images.take(chosen),
        sentence_rows=documents.sentences.positions(chosen),
        image_rows=documents.images.positions(chosen),
    )


def sample_rows(documents: Documents, chosen: Int64, *, max_rows: int, seed: int, epoch: int, step: int) -> Choice:
    """Return at most `max_rows` sentences and images of each of some documents, at random."""
    return draw_rows(
        documents,
        chosen,
        kept=lambda count: min(count, max_rows),
        numbers_of=lambda document: stream("rows of a step", seed, document, epoch, step),
    )


def draw_rows(
    documents: Documents,
    chosen: Int64,
    *,
    kept: Callable[[int], int],
    numbers_of: Callable[[str], np.random.Generator],
) -> Choice:
    """Return sentences and images of some documents, drawn uniformly without replacement, in the documents' order.

    Args:
        documents: that are drawn from.
        chosen: of them.
        kept: gives how many of so many sentences, or images, are drawn.
        numbers_of: gives the random numbers for a document by its id: first for its sentences, then for its images.
    """
    sentences: list[Int64] = []
    images: list[Int64] = []
    for document in chosen.tolist():
        numbers = numbers_of(documents.ids[document])
        for sets, drawn in ((documents.sentences, sentences), (documents.images, images)):
            rows = np.arange(sets.offsets[document], sets.offsets[document + 1])
            if (count := kept(len(rows))) < len(rows):
                rows = np.sort(numbers.permutation(rows)[:count])
            drawn.append(rows)
    return Choice.of(documents, chosen, sentences, images)
