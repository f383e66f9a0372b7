"""Work on the shards of a data set version: one after the other in this process, or many at once by workers.

A task is given a model and a shard, and returns what came of it. Whoever runs tasks knows nothing of what they do.
Results come in the order of the shards and are computed in one thread each, so that nothing depends on who ran them.
Embedding for evaluation, linking and indexes are tasks; a command chooses the workers once (`shards_run_by`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import Shard, split_parts
from training.data.documents import DocumentSet, joined
from training.data.loading import read_for_model
from training.data.ragged import Float32
from training.data.threads import one_thread
from training.link_steps import LinkSteps
from training.model import EmbeddedDocument, LinkModel, embedded

Result = TypeVar("Result")


class RunShards(Protocol):
    """Runs a task for each of some shards, and yields the results in their order."""

    def __call__(
        self, model: LinkModel, task: Callable[[LinkModel, Shard], Result], shards: Sequence[Shard]
    ) -> Iterator[Result]: ...


def run_here(model: LinkModel, task: Callable[[LinkModel, Shard], Result], shards: Sequence[Shard]) -> Iterator[Result]:
    """Run a task for each shard in this process, one after the other."""
    for shard in shards:
        with one_thread():
            result = task(model, shard)
        yield result


_runner: ContextVar[RunShards] = ContextVar("runner of shards", default=run_here)


def run_shards(
    model: LinkModel, task: Callable[[LinkModel, Shard], Result], shards: Sequence[Shard]
) -> Iterator[Result]:
    """Run a task for each shard by the workers that were chosen; raises what the task raises."""
    return _runner.get()(model, task, shards)


@contextmanager
def shards_run_by(run: RunShards) -> Iterator[None]:
    """Let `run` run the shards inside."""
    token = _runner.set(run)
    try:
        yield
    finally:
        _runner.reset(token)


@dataclass(frozen=True, slots=True)
class EmbeddedShard:
    """A shard's documents, N x d vectors of their rows, and U x d of their different images."""

    documents: DocumentSet
    texts: Float32
    images: Float32

    def vectors(self, steps: LinkSteps | None) -> list[EmbeddedDocument]:
        """Return the vectors of each document, for a model's steps at link time."""
        return embedded(self.documents, self.texts, self.images, steps)


def embed_split(
    model: LinkModel, manifest: Manifest, folder: Folder, split: Split | str
) -> tuple[DocumentSet, list[EmbeddedDocument]]:
    """Return the documents of a split with links and places, as a model reads them, and their vectors.

    Raises:
        NotFoundError: the split is not there.
        UsageError: the data set version lacks the vectors that the model reads.
    """
    task = partial(embed_shard, manifest, folder)
    return joined_shards(list(run_shards(model, task, split_parts(manifest, split))), model.steps)


def joined_shards(
    shards: Sequence[EmbeddedShard], steps: LinkSteps | None
) -> tuple[DocumentSet, list[EmbeddedDocument]]:
    """Return the documents of some shards as one set, and their vectors, for a model's steps at link time."""
    return joined([shard.documents for shard in shards]), [each for shard in shards for each in shard.vectors(steps)]


def embed_shard(manifest: Manifest, folder: Folder, model: LinkModel, shard: Shard) -> EmbeddedShard:
    """Return a shard's documents with links and places, and their vectors; raises as `embed_split`."""
    card = model.card
    documents = read_for_model(
        card.config.reading, card.data, manifest, folder, shard.split, with_truth=True, shards=[shard]
    )
    texts, images = model.encode(documents)
    return EmbeddedShard(documents, texts.cpu().numpy(), images.cpu().numpy())


def filled_splits(manifest: Manifest) -> list[str]:
    """Return the splits that have documents."""
    return [split for split in manifest.splits if manifest.parts("documents", split)]
