"""All of Ray: the training core on one or many workers, and tasks on the shards of a data set version.

Both run on a cluster or on a Ray started on this machine. Nothing is decided here about training, or about what a task
does. In training each worker loads its own documents, talks to the others through `torch.distributed` (NCCL on GPUs,
gloo without), and reports an epoch to Ray once its checkpoint is in the run's folder of the lake. A run whose folder
holds a checkpoint continues from it: after a crash of a worker within the same launch, after a kill of the whole driver
with the next one. Ray stores nothing.

A worker process of tasks loads the model with its first one and keeps it. All tasks compute on a GPU of their own, or
all on processors, whatever their machines have, so that bytes do not depend on where a task ran. The model comes
through Ray and MLflow is not asked, so that a worker needs the lake and the output alone. A task whose process died is
given to another by Ray.
"""

import dataclasses
import logging
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.exceptions import RayError
from ray.train import UserCallback
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from ray.util.queue import Queue

from schemas.configs import resolve, restore
from schemas.lake import Lake
from schemas.messages import BuildError, ConfigError, MultilinkError
from schemas.parts import Shard
from training.config import Device, TrainConfig
from training.data.threads import one_thread
from training.loop.context import Context, TorchDistributed
from training.loop.trainer import (
    OnProgress,
    OnReport,
    TrainResult,
    checkpoints,
    fetch_checkpoint,
    fetch_model,
    fetch_start,
    keep_epoch,
    runs_folder,
    train_run,
)
from training.model import LinkModel
from training.shards import Result, run_here

logger = logging.getLogger(__name__)
WORKER_CRASHES_SURVIVED = 2  # of a training since its last checkpoint, of a task
STARTS_TRIED = 500  # of workers, one after another; while a cluster has no room for them, one lasts a minute
CONNECTIONS_TRIED = 3
HEAD = "node:__internal_head__"  # the resource that Ray gives the head of a cluster
OBJECT_STORE_BYTES = 80 << 20  # nothing but small messages goes through it; Ray's least is 75 MiB
_QUIET_AND_QUICK = {
    "RAY_worker_niceness": "0",  # else whatever runs beside a training takes its processors
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else a warning about a coming change
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # else an epoch takes at least two seconds
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
}
_OF_ONE_MACHINE = {
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # nobody takes this machine away, and it is a process
    "RAY_prestart_worker_first_driver": "0",  # Ray Train starts workers with an environment of their own
}


def launch(
    config: TrainConfig,
    *,
    lake: Lake,
    dataset: str,
    workers: int,
    run_id: str,
    on_report: OnReport,
    on_progress: OnProgress,
    address: str | None = None,
) -> TrainResult:
    """Train on `workers` workers and return what came of it; `model` is a local folder.

    Args:
        config: what to train.
        lake: holds the data set and takes the run's folder; with several machines, all of them must reach it.
        dataset: NAME@VERSION.
        workers: training processes; but for rounding, their number changes nothing.
        run_id: names the run's folder. A folder that holds a checkpoint is continued.
        on_report: called with the metrics of each epoch, from another thread, while training goes on. What it raises is
            raised when training is over.
        on_progress: called with a line of progress now and then, likewise.
        address: of a Ray cluster; None starts one on this machine and stops it afterwards.

    Raises:
        UsageError: `workers` is below 1 or above the batches of a step, or a worker raised it.
        ConfigError: more GPUs are asked for than there are, or a worker raised it.
        BuildError: a worker crashed more often than is survived, or the cluster did.
    """
    config.check_workers(workers)
    folder = runs_folder(lake).child(run_id)
    with (
        tempfile.TemporaryDirectory(prefix="multilink-ray-") as scratch,
        cluster(address, workers),
        _delivered(on_report, on_progress) as messages,
    ):
        make = partial(_trainer, config, lake, dataset=dataset, workers=workers, run_id=run_id, messages=messages)
        result = _fit_surviving(
            partial(make, is_local=address is None, scratch=scratch), lambda: max(checkpoints(folder), default="")
        )
    return dataclasses.replace(result, model=fetch_model(folder))


def _trainer(
    config: TrainConfig,
    lake: Lake,
    *,
    dataset: str,
    workers: int,
    run_id: str,
    messages: Queue,
    is_local: bool,
    scratch: str,
) -> TorchTrainer:
    use_gpu = _use_gpu(config.training.device, workers)
    cpus = max(1, torch.get_num_threads() // workers) if is_local else 1
    settings = {
        "config": resolve(config),
        "lake": lake.root.uri,
        "dataset": dataset,
        "run_id": run_id,
        "use_gpu": use_gpu,
        "messages": messages,
    }
    return TorchTrainer(
        _train_worker,
        train_loop_config=settings,
        torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo"),
        scaling_config=ray.train.ScalingConfig(
            num_workers=workers,
            use_gpu=use_gpu,
            resources_per_worker={"CPU": cpus} | ({"GPU": 1} if use_gpu else {}),
        ),
        run_config=ray.train.RunConfig(
            name=run_id,
            storage_path=scratch,
            failure_config=ray.train.FailureConfig(max_failures=0, controller_failure_limit=STARTS_TRIED),
            logging_config=ray.train.LoggingConfig(log_level="ERROR"),
            callbacks=[_Epochs(messages)],
        ),
    )


def _train_worker(settings: Mapping[str, Any]) -> TrainResult:
    """Run the training core as one worker of a Ray Train run."""
    config = restore(TrainConfig, settings["config"])
    lake = Lake.at(settings["lake"])
    folder = runs_folder(lake).child(settings["run_id"])
    make_context = TorchDistributed if ray.train.get_context().get_world_size() > 1 else Context
    context = make_context(
        device=get_device() if settings["use_gpu"] else torch.device("cpu"),
        on_report=partial(keep_epoch, folder, lambda metrics: ray.train.report(dict(metrics))),  # where all ranks meet
        find_checkpoint=partial(fetch_checkpoint, folder),
        on_progress=settings["messages"].put,
        find_model=partial(fetch_start, folder),
    )
    return train_run(config, context, lake=lake, dataset=settings["dataset"], folder=folder)


@dataclasses.dataclass
class _Epochs(UserCallback):
    """Sends the metrics of each epoch to the driver."""

    messages: Queue

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self.messages.put(metrics[0])


@contextmanager
def _delivered(on_report: OnReport, on_progress: OnProgress) -> Iterator[Queue]:
    """Give a queue whose messages, metrics or lines, are handed over by another thread until the body is left.

    It lies on the head: on another node it would die with that, and the run with it.
    """
    messages = Queue(actor_options={"num_cpus": 0, "resources": {HEAD: 0.001}})

    def deliver() -> None:
        while (message := messages.get()) is not None:
            on_progress(message) if isinstance(message, str) else on_report(message)

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="epochs") as pool:
        delivered = pool.submit(deliver)
        try:
            yield messages
        finally:
            with suppress(RayError):  # of a cluster that is gone
                messages.put(None)
        delivered.result()


@contextmanager
def cluster(address: str | None, workers: int) -> Iterator[None]:
    """Connect to a Ray cluster, or start one on this machine; leave it, or stop it, afterwards."""
    wanted = _QUIET_AND_QUICK | ({} if address else _OF_ONE_MACHINE)
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            cpus = max(workers, os.cpu_count() or 1)
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **quiet,
            )
        else:
            _connect(address, quiet)
        yield
    finally:
        ray.shutdown()
        for name in added:
            os.environ.pop(name, None)


def _connect(address: str, options: Mapping[str, Any]) -> None:
    """Connect to a Ray cluster.

    Raises:
        BuildError: it does not take us; a busy head, which may be too slow to begin a process for us, is asked again.
    """
    for attempt in range(CONNECTIONS_TRIED):
        try:
            ray.init(address=address, **options)
            return
        except (ConnectionError, RuntimeError) as problem:
            ray.shutdown()
            if attempt + 1 == CONNECTIONS_TRIED:
                raise BuildError(f"RAY_ADDRESS {address}: {_last_line(problem)}") from problem


def _use_gpu(device: Device, workers: int) -> bool:
    """Return whether each worker gets a GPU: asked for, or there are enough and it was left open."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if device is Device.CUDA and gpus < workers:
        raise ConfigError(f"training.device = 'cuda': expected a GPU for each of {workers} workers, found {gpus}")
    if device is Device.AUTO and 0 < gpus < workers:
        logger.warning(
            "training on CPUs: %d GPUs for %d workers; use --workers %d to train on GPUs", gpus, workers, gpus
        )
    return device is not Device.CPU and gpus >= workers


def _fit(trainer: TorchTrainer) -> TrainResult:
    """Run a trainer to its end; a mistake of ours, raised by a worker, is raised here as it is.

    Ray's own retries are off: they would repeat a mistake as they repeat a crash.
    """
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        result: TrainResult = trainer.fit().return_value
    except ray.train.WorkerGroupError as failure:
        raise _own_error(failure.worker_failures) or failure from failure
    except ray.train.TrainingFailedError as failure:
        raise BuildError(f"Ray Train could not run: {_last_line(failure)}") from failure
    except SystemExit as ended:  # how Ray Train's own handler of an interrupt ends
        raise KeyboardInterrupt from ended
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)  # Ray Train put its own there
    return result


def _fit_surviving(make_trainer: Callable[[], TorchTrainer], newest: Callable[[], str]) -> TrainResult:
    """Run a trainer, and again from the last checkpoint when a worker crashed.

    Crashes are counted since the last checkpoint: a training of days outlives any number, a mistake ends it soon.
    """
    crashes, before = 0, newest()
    while True:
        try:
            return _fit(make_trainer())
        except ray.train.WorkerGroupError as failure:
            kept = newest()
            crashes, before = (crashes if kept == before else 0) + 1, kept
            if crashes > WORKER_CRASHES_SURVIVED:
                rank, error = min(failure.worker_failures.items(), key=itemgetter(0))
                raise BuildError(f"training failed on worker {rank}: {_last_line(error)}") from failure


def _own_error(failures: Mapping[int, BaseException]) -> MultilinkError | None:
    """Return the error of ours that a worker stopped with, or None where it was another."""
    for rank in sorted(failures):
        error: BaseException | None = failures[rank]
        while error is not None:
            if isinstance(error, MultilinkError):
                return error
            error = getattr(error, "cause", None) or error.__cause__
    return None


def _last_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1].strip() if lines else ''}"


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
