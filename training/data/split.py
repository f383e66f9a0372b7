"""A split as training reads it: any documents of it, in any order, by every worker of a host from the same memory.

A shard is read, checked and written as Arrow arrays of the host (`mapped.py`) when its first document is asked for;
after that it is mapped. Nothing of a split is held but its index (`index.py`), and of that 32 bytes a document a host.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial

import numpy as np

from schemas.configs import Json
from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.messages import IntegrityError
from schemas.parts import split_parts
from schemas.versions import fingerprint
from training.data.documents import DocumentSet, TextView, joined, viewed
from training.data.index import WINDOW, SplitIndex, index_arrays, index_of
from training.data.lake import Columns, read_split
from training.data.mapped import cache_folder, content_of, from_arrays, make_room, mapped, to_arrays
from training.data.ragged import Int64, stream

CACHE_FORMAT = 3
MOST_OPEN = 16_384  # shards; the system maps 65,530 files of a process
SAMPLED_DOCUMENTS = 200_000


@dataclass(kw_only=True)
class TrainingSplit:
    """A split of a data set version that is trained on, or that a training is judged by.

    Attributes:
        manifest: of the version.
        folder: of the version.
        split: its name.
        columns: what is read of it.
        view: which sentences are read.
        labelled_share: share of the documents whose links are shown to the objective; 0: none.
        seed: of the choice of those documents.
        index: of all documents.

    Raises:
        NotFoundError: the split is not there.
        ConfigError: a named extractor is not there.
        IntegrityError: a part is not there.
    """

    manifest: Manifest
    folder: Folder
    split: Split
    columns: Columns
    view: TextView
    labelled_share: float = 0.0
    seed: int = 0
    index: SplitIndex = field(init=False)

    def __post_init__(self) -> None:
        self.columns = self.columns.resolved(self.manifest)
        self._parts = split_parts(self.manifest, self.split)
        make_room(cache_folder())
        make = partial(index_arrays, self.manifest, self.folder, self.split, view=self.view)
        name = _name((shard.documents for shard in self._parts), asdict(self.view))
        self.index = index_of(self.manifest, self.split, mapped(name, make))
        # Batches come from a window of shards, and while it ends from the next one's.
        in_two_windows = 2 + 2 * WINDOW * len(self._parts) // max(1, len(self.index))
        self._open = lru_cache(min(MOST_OPEN, in_two_windows + in_two_windows // 4))(self._map)

    def documents(self, positions: Int64) -> DocumentSet:
        """Return the documents at some positions of the index, in the given order, with the images they show.

        Raises:
            IntegrityError: a part is damaged, or a document cannot be read: an image or a vector is missing.
            UsageError: an image has no picture, where pictures are read.
        """
        shards = np.searchsorted(self.index.shards.offsets, positions, side="right") - 1
        order = np.argsort(shards, kind="stable")
        numbers, starts = np.unique(shards[order], return_index=True)
        groups = zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
        firsts = self.index.shards.offsets
        parts = [self._open(number).take_documents(positions[rows] - firsts[number]) for number, rows in groups]
        documents = joined(parts)
        return viewed(documents if len(parts) == 1 else documents.take_documents(np.argsort(order)), self.view)

    def links_shown(self, documents: DocumentSet) -> tuple[Int64 | None, ...] | None:
        """Return the links that are shown of some documents, None where they are not; None unless some are."""
        if not self.labelled_share or documents.links is None:
            return None
        pairs = zip(documents.ids, documents.links, strict=True)
        return tuple(
            links if is_labelled(id_, share=self.labelled_share, seed=self.seed) else None for id_, links in pairs
        )

    def shard(self, number: int) -> DocumentSet:
        """Return the documents of a shard; raises as `documents`."""
        return viewed(self._open(number), self.view)

    def _map(self, number: int) -> DocumentSet:
        """Return all documents of a shard, every sentence of them, over memory that is mapped."""
        shard = self._parts[number]
        read = partial(read_split, self.manifest, self.folder, self.split, self.columns, shards=[shard])
        documents = from_arrays(mapped(_name(shard, asdict(self.columns)), lambda: to_arrays(read())))
        first = self.index.shards.rows(number).start
        offsets = self.index.images.offsets[first : first + len(documents) + 1]
        if not np.array_equal(documents.images.offsets, offsets - offsets[0]):
            raise IntegrityError(f"{shard.documents.path}: its documents have other images than when they were counted")
        return documents


def _name(parts: Iterable[FileEntry], read: Json) -> str:
    """Return the name under which this host keeps what was read of some parts: by their bytes, and by what was read."""
    return f"{content_of(parts)}-{fingerprint([CACHE_FORMAT, read])[:16]}"


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
