"""Ray wiring: the shards of a linking as tasks of a Ray cluster, or of a Ray started on this machine.

Nothing is decided here about links. A task links one shard; a worker process loads the model with its first task and
keeps it. The model comes through Ray and MLflow is not asked, so that a worker needs the lake and the output alone. A
task whose process died is given to another by Ray; it writes the same file.
"""

import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import ray

from schemas.errors import BuildError, MultilinkError
from training.linking.shards import LinkedShard, Linking, Shard, link_shard
from training.model import LinkModel
from training.ray.train import WORKER_CRASHES_SURVIVED, cluster


@dataclass(frozen=True, slots=True)
class _Shared:
    """What every worker is sent once: the model's files by name, and what all shards share."""

    files: Mapping[str, bytes]
    linking: Linking


@dataclass(frozen=True, slots=True)
class RayWorkers:
    """Link shards by Ray, `workers` at a time.

    Attributes:
        workers: shards that are linked at once, each by a process with one CPU of its own.
        address: of a Ray cluster, whose machines reach the lake and the output; None starts one on this machine.
    """

    workers: int
    address: str | None = None

    def __call__(self, model: LinkModel, linking: Linking, shards: Sequence[Shard]) -> Iterator[LinkedShard]:
        """Yield the shards as they are linked, in any order.

        Raises:
            MultilinkError: what a worker raised.
            BuildError: a worker crashed more often than is survived, or the cluster did.
        """
        with cluster(self.address, self.workers):
            shared = ray.put(_Shared(_files(model), linking))
            task = ray.remote(num_cpus=1, max_retries=WORKER_CRASHES_SURVIVED)(_link)
            waiting = deque(shards)
            running: dict[ray.ObjectRef, Shard] = {}
            while waiting or running:
                while waiting and len(running) < self.workers:
                    shard = waiting.popleft()
                    running[task.remote([shared], shard)] = shard  # in a list: or Ray would hand over the value itself
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    yield _result(reference, running.pop(reference))


def _link(shared: Sequence[ray.ObjectRef], shard: Shard) -> LinkedShard:
    """Link one shard in a worker."""
    model, linking = _received(shared[0])
    return link_shard(model, linking, shard)


@lru_cache(maxsize=1)
def _received(shared: ray.ObjectRef) -> tuple[LinkModel, Linking]:
    """Return the model, loaded, and what all shards share; a worker process asks once."""
    sent: _Shared = ray.get(shared)
    with tempfile.TemporaryDirectory(prefix="multilink-model-") as folder:
        for name, data in sent.files.items():
            (Path(folder) / name).write_bytes(data)
        return LinkModel.load(Path(folder)), sent.linking


def _files(model: LinkModel) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="multilink-model-") as folder:
        model.save(Path(folder))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _result(reference: ray.ObjectRef, shard: Shard) -> LinkedShard:
    try:
        found: LinkedShard = ray.get(reference)
    except ray.exceptions.RayTaskError as failure:
        if isinstance(failure.cause, MultilinkError):
            raise failure.cause from failure
        raise
    except ray.exceptions.RayError as failure:
        why = str(failure).splitlines()[0]
        raise BuildError(
            f"{shard.split}/{shard.name} could not be linked: {type(failure).__name__}: {why}"
        ) from failure
    return found
