"""Ray wiring: a task for each shard of a data set version, on a Ray cluster or on a Ray started on this machine.

Nothing is decided here about what a task does. A worker process loads the model with its first task and keeps it. All
tasks compute on a GPU of their own, or all on processors, whatever their machines have, so that bytes do not depend on
where a task ran. The model comes through Ray and MLflow is not asked, so that a worker needs the lake and the output
alone. A task whose process died is given to another by Ray.
"""

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import ray
import torch

from schemas.messages import BuildError, MultilinkError
from schemas.parts import Shard
from training.data.threads import one_thread
from training.model import LinkModel
from training.ray.train import WORKER_CRASHES_SURVIVED, cluster
from training.shards import Result, run_here

GIVEN_AHEAD = 4  # shards a worker whose results may wait for an earlier one


@dataclass(frozen=True, slots=True)
class _Shared:
    """What every worker is sent once: the model's files by name, the task, and the device it computes on."""

    files: Mapping[str, bytes]
    task: Callable[[LinkModel, Shard], Any]
    device: str


@dataclass(slots=True)
class RayWorkers(AbstractContextManager["RayWorkers"]):
    """Runs tasks by Ray, `workers` at a time; Ray is there from the first task until the context is left.

    A single shard is worked on in this process, unless there is a cluster.

    Attributes:
        workers: shards that are worked on at once, each by a process with one CPU, and a GPU where each can have one.
        address: of a Ray cluster, whose machines reach what the task reads and writes; None starts one here.
    """

    workers: int
    address: str | None = None
    _connection: ExitStack | None = field(default=None, init=False)

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __call__(
        self, model: LinkModel, task: Callable[[LinkModel, Shard], Result], shards: Sequence[Shard]
    ) -> Iterator[Result]:
        """Yield the results in the order of the shards; a few of them wait for an earlier one.

        Raises:
            MultilinkError: what a task raised.
            BuildError: a worker crashed more often than is survived, or the cluster did.
        """
        if self._connection is None:
            if self.address is None and len(shards) < 2:
                yield from run_here(model, task, shards)
                return
            self._connection = ExitStack()
            self._connection.enter_context(cluster(self.address, self.workers))
        gpus = int(ray.cluster_resources().get("GPU", 0) >= self.workers)
        shared = ray.put(_Shared(_files(model), task, "cuda" if gpus else "cpu"))
        run = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=WORKER_CRASHES_SURVIVED)(_run)
        remaining, started = deque(shards), deque[tuple[Shard, ray.ObjectRef]]()
        running: list[ray.ObjectRef] = []
        while remaining or started:
            while remaining and len(running) < self.workers and len(started) < GIVEN_AHEAD * self.workers:
                shard = remaining.popleft()
                running.append(run.remote([shared], shard))  # in a list: or Ray would hand over the value
                started.append((shard, running[-1]))
            if started[0][1] in running:
                _, running = ray.wait(running, num_returns=1)
            else:
                yield _result(*started.popleft())


def _run(shared: Sequence[ray.ObjectRef], shard: Shard) -> Any:
    """Run the task for one shard in a worker."""
    model, task = _received(shared[0])
    with one_thread():
        return task(model, shard)


@lru_cache(maxsize=1)
def _received(shared: ray.ObjectRef) -> tuple[LinkModel, Callable[[LinkModel, Shard], Any]]:
    """Return the model, loaded, and the task; a worker process asks once."""
    sent: _Shared = ray.get(shared)
    with tempfile.TemporaryDirectory(prefix="multilink-model-") as folder:
        for name, data in sent.files.items():
            (Path(folder) / name).write_bytes(data)
        return LinkModel.load(Path(folder), torch.device(sent.device)), sent.task


def _files(model: LinkModel) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="multilink-model-") as folder:
        model.save(Path(folder))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _result(shard: Shard, reference: ray.ObjectRef) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as failure:
        if isinstance(failure.cause, MultilinkError):
            raise failure.cause from failure
        raise
    except ray.exceptions.RayError as failure:
        why = str(failure).splitlines()[0]
        raise BuildError(f"{shard.split}/{shard.name}: a worker failed: {type(failure).__name__}: {why}") from failure
