"""A split as training reads it: any documents of it, in any order, by every worker of a host from the same memory.

A shard is read, checked and written as Arrow arrays of the host (`mapped.py`) when its first document is asked for;
after that it is mapped. Nothing of a split is held but its index (`index.py`), and of that 32 bytes a document a host.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from schemas.configs import Json
from schemas.documents import Split
from schemas.errors import IntegrityError
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import split_parts
from schemas.versions import canonical_json
from training.data.document_arrays import from_arrays, to_arrays
from training.data.documents import DocumentSet, joined
from training.data.index import SplitIndex, index_arrays, index_of
from training.data.lake import Columns, read_split
from training.data.mapped import cache_folder, mapped
from training.data.ragged import Int64
from training.data.streams import stream
from training.data.views import TextView, viewed

CACHE_FORMAT = 1
SHARDS_OPEN = 256  # a window of batches is of fewer
SAMPLED_DOCUMENTS = 200_000


class TrainingSplit:
    """Documents that are trained on, or that a training is judged by.

    Attributes:
        index: of all of them.
        labelled_share: share of the documents whose links are shown to the objective; 0: none.
        seed: of the choice of those documents.
    """

    index: SplitIndex
    labelled_share: float = 0.0
    seed: int = 0

    def documents(self, positions: Int64) -> DocumentSet:
        """Return the documents at some positions of the index, in the given order, with the images they show.

        Raises:
            IntegrityError: a part is damaged, or a document cannot be read: an image or a vector is missing.
            UsageError: an image has no picture, where pictures are read.
        """
        raise NotImplementedError

    def shard(self, number: int) -> DocumentSet:
        """Return the documents of a shard; raises as `documents`."""
        raise NotImplementedError

    def links_shown(self, documents: DocumentSet) -> tuple[Int64 | None, ...] | None:
        """Return the links that are shown of some documents, None where they are not; None unless some are."""
        if not self.labelled_share or documents.links is None:
            return None
        pairs = zip(documents.ids, documents.links, strict=True)
        return tuple(
            links if is_labelled(id_, share=self.labelled_share, seed=self.seed) else None for id_, links in pairs
        )


@dataclass(kw_only=True)
class MappedSplit(TrainingSplit):
    """A split of a data set version.

    Attributes:
        manifest: of the version.
        folder: of the version.
        digest: SHA-256 (hex) of the manifest.
        split: its name.
        columns: what is read of it.
        view: which sentences are read.

    Raises:
        NotFoundError: the split is not there.
        ConfigError: a named extractor is not there.
        IntegrityError: a part is not there.
    """

    manifest: Manifest
    folder: Folder
    digest: str
    split: Split
    columns: Columns
    view: TextView
    labelled_share: float = 0.0
    seed: int = 0
    index: SplitIndex = field(init=False)

    def __post_init__(self) -> None:
        self.columns = self.columns.resolved(self.manifest)
        self._parts = split_parts(self.manifest, self.split)
        self._open = lru_cache(SHARDS_OPEN)(self._map)
        make = partial(index_arrays, self.manifest, self.folder, self.split, view=self.view)
        self.index = index_of(self.manifest, self.split, mapped(self._path("index", asdict(self.view)), make))

    def documents(self, positions: Int64) -> DocumentSet:
        shards = np.searchsorted(self.index.shards.offsets, positions, side="right") - 1
        order = np.argsort(shards, kind="stable")
        numbers, starts = np.unique(shards[order], return_index=True)
        groups = zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
        firsts = self.index.shards.offsets
        parts = [self._open(number).take_documents(positions[rows] - firsts[number]) for number, rows in groups]
        found = joined(parts)
        return viewed(found if len(parts) == 1 else found.take_documents(np.argsort(order)), self.view)

    def shard(self, number: int) -> DocumentSet:
        return viewed(self._open(number), self.view)

    def _map(self, number: int) -> DocumentSet:
        """Return all documents of a shard, every sentence of them, over memory that is mapped."""
        path = self._path(f"{number:05d}", asdict(self.columns))
        read = partial(read_split, self.manifest, self.folder, self.split, self.columns, shards=[self._parts[number]])
        found = from_arrays(mapped(path, lambda: to_arrays(read())))
        first = self.index.shards.rows(number).start
        offsets = self.index.images.offsets[first : first + len(found) + 1]
        if not np.array_equal(found.images.offsets, offsets - offsets[0]):
            raise IntegrityError(f"{path.name}: its documents have other images than when they were counted")
        return found

    def _path(self, name: str, *read: Json) -> Path:
        """Return where this host keeps something of the split, by what was read."""
        key = hashlib.sha256(canonical_json([CACHE_FORMAT, *read]).encode()).hexdigest()
        return cache_folder(self.digest) / f"{self.split}-{name}-{key[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some whole shards of a split, as a worker's share of what statistics are taken from: all of a small split.

    Attributes:
        split: the split.
        shards: their numbers.
    """

    split: TrainingSplit
    shards: tuple[int, ...]

    def __iter__(self) -> Iterator[DocumentSet]:
        """Yield the documents, shard by shard, in the view that is read."""
        return map(self.split.shard, self.shards)


def sample(split: TrainingSplit, *, seed: int, rank: int, world_size: int) -> Sample:
    """Return worker `rank`'s share of the sample: shards in a random order until they hold `SAMPLED_DOCUMENTS`.

    The shards of all workers, by rank, are those of the sample in the order of the split.
    """
    counts = split.index.shards.counts
    order = stream("sample", seed).permutation(len(counts))
    taken = int(np.searchsorted(np.cumsum(counts[order]), SAMPLED_DOCUMENTS)) + 1
    shards = np.array_split(np.sort(order[:taken]), world_size)[rank]
    return Sample(split=split, shards=tuple(shards.tolist()))


def is_labelled(document: str, *, share: float, seed: int) -> bool:
    """Return whether a document is of the labelled share; one that is, is of every larger share, too."""
    return float(stream("labelled", seed, document).random()) < share
