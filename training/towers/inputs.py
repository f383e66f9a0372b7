"""What every tower is: built from its settings, started from the training split, then from inputs to unit vectors.

A tower takes of its inputs what it reads and refuses what is missing. Its settings (`training.parts`) build it.

Ragged rows of tokens are packed without padding: in order of their length, so that equal lengths lie side by side.

    rows       a b | c | d e      packed   c | a b | d e      groups  1 row of 1 token, 2 rows of 2

All that is done token by token (embedding, projections, normalisation, feed-forward) sees the packed T x E tokens as
they are. What mixes the tokens of a row (attention, pooling) sees each group as a dense rows x length x E block, a
view of the packed tokens: nothing is copied, padded or masked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.messages import ConfigError, UsageError
from training.data.documents import DocumentSet, RegionBank
from training.data.ragged import Floats, Int64, Ragged, to_device

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


@dataclass(frozen=True, slots=True)
class Packing:
    """How ragged rows are packed.

    Attributes:
        order: rows in the order they are packed in.
        positions: T positions of the packed tokens among the ragged ones.
        groups: runs of rows of equal length, in packed order: how many rows, how many tokens in each.
    """

    order: Int64
    positions: Int64
    groups: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, rows: Ragged) -> Packing:
        """Return the packing of rows of at least one token each."""
        lengths = rows.counts
        order = np.argsort(lengths, kind="stable")
        sizes, counts = np.unique(lengths, return_counts=True)
        groups = tuple((int(count), int(size)) for count, size in zip(counts, sizes, strict=True))
        return cls(order, rows.positions(order), groups)

    @property
    def steps(self) -> Int64:
        """Return the T positions of the packed tokens in their rows, from 0."""
        return np.concatenate([np.zeros(0, np.int64), *(np.tile(np.arange(size), n) for n, size in self.groups)])

    def restore(self, rows_NE: Tensor) -> Tensor:
        """Return rows that are in packed order in the order they were given in."""
        return rows_NE.index_select(0, to_device(np.argsort(self.order), rows_NE.device))


def blocks(tokens_TE: Tensor, groups: tuple[tuple[int, int], ...]) -> list[Tensor]:
    """Return each group's tokens, rows x length x E."""
    parts = torch.split(tokens_TE, [count * size for count, size in groups])
    return [part.view(count, size, -1) for part, (count, size) in zip(parts, groups, strict=True)]


def attend(query_TE: Tensor, key_TE: Tensor, value_TE: Tensor, packing: Packing, *, heads: int) -> Tensor:
    """Return scaled dot-product attention of each row's tokens over one another, T x E (Vaswani 2017, eq. 1)."""
    query, key, value = (blocks(x_TE, packing.groups) for x_TE in (query_TE, key_TE, value_TE))
    parts = [_attend_block(q, k, v, heads) for q, k, v in zip(query, key, value, strict=True)]
    return torch.cat([value_TE[:0], *parts])


def pool(tokens_TE: Tensor, packing: Packing, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Return N x E rows, in the order they were given in; `reduce` takes rows x length x E blocks to rows x E."""
    parts = [reduce(block) for block in blocks(tokens_TE, packing.groups)]
    return packing.restore(torch.cat([tokens_TE[:0], *parts]))


def mean_of(block: Tensor) -> Tensor:
    """Return the mean over a block's tokens."""
    return block.mean(dim=1)


def largest_of(block: Tensor) -> Tensor:
    """Return the largest value over a block's tokens, feature by feature."""
    return block.amax(dim=1)


def softmax_pool(tokens_TE: Tensor, scores_T1: Tensor, packing: Packing) -> Tensor:
    """Return N x E rows: the mean of each row's tokens weighted by the softmax of their scores."""
    parts = [
        (scores.softmax(dim=1) * tokens).sum(dim=1)
        for scores, tokens in zip(blocks(scores_T1, packing.groups), blocks(tokens_TE, packing.groups), strict=True)
    ]
    return packing.restore(torch.cat([tokens_TE[:0], *parts]))


def _attend_block(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Return (rows x length) x E attention of one group's rows."""
    count, size, _ = query.shape
    q, k, v = (x.view(count, size, heads, -1).transpose(1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(count * size, -1)


class SelfAttention(nn.Module):
    """Multi-head self-attention of Liu 2020 (eq. 2 and below): heads of given sizes, no bias.

    Args:
        features: w, size of a token.
        heads: h.
        head_dimensions: d_k, size of a query and a key.
        value_dimensions: d_v, size of a value; None: d_k.
        has_output: whether the heads go through W^O, back to `features`.
    """

    def __init__(
        self,
        features: int,
        *,
        heads: int,
        head_dimensions: int,
        value_dimensions: int | None = None,
        has_output: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        values = heads * (value_dimensions or head_dimensions)
        self.query = nn.Linear(features, heads * head_dimensions, bias=False)
        self.key = nn.Linear(features, heads * head_dimensions, bias=False)
        self.value = nn.Linear(features, values, bias=False)
        self.output = nn.Linear(values, features, bias=False) if has_output else None

    def forward(self, x_TE: Tensor, packing: Packing) -> Tensor:
        mixed = attend(self.query(x_TE), self.key(x_TE), self.value(x_TE), packing, heads=self.heads)
        return mixed if self.output is None else self.output(mixed)
