"""What every tower is: built from its settings, started from the training split, then from inputs to unit vectors.

A tower takes of its inputs what it reads and refuses what is missing. Its settings (`training.parts`) build it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.messages import ConfigError, UsageError
from training.data.documents import DocumentSet, RegionBank
from training.data.ragged import Floats, Int64, to_device

Found = TypeVar("Found")
CPU = torch.device("cpu")
GATHERED_AT_ONCE = 1 << 20  # numbers of each worker


@dataclass(frozen=True, slots=True, kw_only=True)
class TextInput:
    """N sentences.

    Attributes:
        texts: the sentences.
        vectors: N x t vectors of a sentence encoder, where there are any.
        languages: N language codes, where they are known.
        sources: N tuples of texts, one a source, where the rows are fused.
    """

    texts: Sequence[str]
    vectors: Floats | None = None
    languages: Sequence[str] | None = None
    sources: Sequence[tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInput:
    """U images.

    Attributes:
        vectors: U x v vectors of an image extractor; v is 0 where there are none.
        regions: of the U images, where there are any.
        jpegs: U pictures, where there are any.
    """

    vectors: Floats
    regions: RegionBank | None = None
    jpegs: Sequence[bytes] | None = None


class Rows(Protocol):
    """Prepared inputs of a tower, one a sentence or image."""

    def __len__(self) -> int: ...

    def take(self, rows: Int64) -> Self:
        """Return the given rows, in the given order."""
        ...


@dataclass(frozen=True, slots=True)
class VectorRows:
    """Fixed vectors, N x dimensions, float16 or float32."""

    vectors: Floats

    @classmethod
    def checked(cls, vectors: Floats, features: int) -> VectorRows:
        """Return the rows of N x `features` vectors (an empty array may have any width).

        Raises:
            UsageError: the vectors have another size.
        """
        if vectors.ndim != 2 or (len(vectors) and vectors.shape[1] != features):
            raise UsageError(f"expected feature vectors of {features} numbers, found shape {vectors.shape}")
        return cls(vectors if len(vectors) else np.zeros((0, features), np.float32))

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: Int64) -> VectorRows:
        return VectorRows(self.vectors[rows])

    def tensor(self, device: torch.device) -> Tensor:
        """Return N x dimensions, float32."""
        return to_device(np.array(self.vectors, dtype=np.float32), device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a tower is built for; a feature size is None where the data set has no such vectors, or no tower reads them.

    Attributes:
        dimensions: d, of the joint space.
        sentence: of a sentence encoder's vector.
        image: of an image extractor's vector.
        region: of a region's vector.
    """

    dimensions: int
    sentence: int | None = None
    image: int | None = None
    region: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Those that train together, as far as a tower's start needs them: here, one process alone.

    Attributes:
        device: that everything is computed on.
    """

    device: torch.device = CPU

    @property
    def rank(self) -> int:
        return 0

    @property
    def world_size(self) -> int:
        return 1

    def gather(self, rows: Tensor) -> list[Tensor]:
        """Return every worker's rows, in rank order, without gradient.

        First dimensions may differ (zero included); the other dimensions and the dtype may not.
        """
        return [rows.detach()]

    def of_first(self, values: Tensor) -> Tensor:
        """Return the first worker's tensor, without gradient; all give one of its shape.

        What it worked out is every worker's, whatever their processors round to.
        """
        return values.detach()


def add_of_workers(total: Tensor, local: Tensor, workers: Workers, *, count: int) -> None:
    """Add the tensors of the first workers to a total, worker after worker; few numbers of each are held at a time."""
    for sums, part in zip(*(torch.split(each.view(-1), GATHERED_AT_ONCE) for each in (total, local)), strict=True):
        for theirs in workers.gather(part[None])[:count]:
            sums.add_(theirs[0])


class Tower(nn.Module):
    """Rows that it prepared -> N x d unit vectors.

    What a tower draws in training comes from torch's generators, which the loop seeds for each batch.

    Attributes:
        word_tables: names of the parameters that hold a vector a word.
        own_encoder: module that the encoder of one of several sources can start from; empty: none can.
        source_encoders: module that holds an encoder for each source, by its name; empty: the tower reads one text.
        new_modules: modules that start from no other model.
    """

    word_tables: ClassVar[tuple[str, ...]] = ()
    own_encoder: ClassVar[str] = ""
    source_encoders: ClassVar[str] = ""
    new_modules: ClassVar[tuple[str, ...]] = ()

    def prepare(self, inputs: Any) -> Rows:
        """Return the rows of a `TextInput` or an `ImageInput`.

        Raises:
            UsageError: what the tower reads is not given, or has another size.
        """
        raise UsageError(f"{type(self).__name__} prepares no input")

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        """Set the weights that do not start at random, the same on every worker.

        Args:
            documents: this worker's share of the training documents that statistics are taken from, in parts; the
                parts of all workers, by rank, are the same whatever their number.
            workers: all of them.
            seed: of the run.

        Raises:
            ConfigError: a file or package to start from is not there, or does not fit.
        """

    def set_map(self, weights_DV: Tensor, bias_D: Tensor) -> None:
        """Become `unit(W x + b)` of vectors `x`, of a tower whose settings are `is_affine`; missing rows of W are 0."""
        raise ConfigError(f"{type(self).__name__} is no affine map")


def unit(rows: Tensor) -> Tensor:
    """Return rows of Euclidean length 1, float32 whatever the precision of the products before."""
    return F.normalize(rows.float(), dim=-1)


def required(value: Found | None, *, tower: str, what: str) -> Found:
    """Return what a tower is built from.

    Raises:
        ConfigError: it is None.
    """
    if value is None:
        raise ConfigError(f"{tower}: expected {what}, found none")
    return value


def gather_json(value: Any, workers: Workers) -> Iterator[Any]:
    """Yield every worker's value, in rank order; values travel as JSON bytes."""
    data = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
    for part in workers.gather(torch.from_numpy(data.copy()).to(workers.device)):
        yield json.loads(part.cpu().numpy().tobytes())


def text_input(documents: DocumentSet) -> TextInput:
    """Return all sentences of some documents."""
    owners = documents.sentences.owners.tolist()
    languages = None
    if documents.languages is not None:
        languages = tuple(documents.languages[document] for document in owners)
    return TextInput(
        texts=documents.texts,
        vectors=documents.sentence_vectors,
        languages=languages,
        sources=documents.sources,
    )


def image_input(documents: DocumentSet) -> ImageInput:
    """Return all different images of some documents, in the order of their bank."""
    return ImageInput(
        vectors=documents.image_bank,
        regions=documents.regions,
        jpegs=documents.image_jpegs,
    )
