"""Beam's local runner with its PCollections in files: the memory of a run does not grow with its elements.

Beam's `FnApiRunner` runs a pipeline stage by stage, each as one bundle a worker: a stage's whole input, its whole
output and every group wait in memory. `SpillingRunner` is that runner, its translation, workers and state untouched,
with

- outputs in a `Spool`, and groups in a `Sorter`, in place of `ListBuffer` and `GroupingBuffer`;
- a stage's input cut into bundles of a bounded size, handed to whichever worker is free;
- what an in-process worker puts out taken from it at once, instead of when its bundle has ended.

One element, and one group of a GroupByKey, still have to fit into memory; so do side inputs, which are in memory as in
Beam. Groups come sorted by encoded key rather than in order of arrival. The input of a stage with timers is one bundle.

What it relies on in `apache_beam.runners.portability.fn_api_runner` (2.77), which is no public interface, and what
`tests/pipelines/runner/test_spilling.py` checks: `FnApiRunner._get_bundle_manager`, whose result has `process_bundle`;
`BundleManager`, which runs one bundle on `bundle_context_manager.worker_handlers`, and appends what several workers put
out under one lock; `BundleContextManager`, a copy of which can have other `_worker_handlers`, and whose `get_buffer`
looks a buffer up in `execution_context.pcoll_buffers` before it makes one; the four methods called on a buffer (append,
extend, copy, iteration); the attributes of `GroupingBuffer` that hold its coders; and the marker behind which a worker
process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from apache_beam.coders.coder_impl import create_InputStream
from apache_beam.metrics.monitoring_infos import consolidate
from apache_beam.portability import python_urns
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.execution import GroupingBuffer
from apache_beam.runners.portability.fn_api_runner.fn_runner import BundleManager
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    EmbeddedWorkerHandler,
    SubprocessSdkWorkerHandler,
    WorkerHandler,
)
from apache_beam.runners.worker.data_plane import SizeBasedBufferingClosableOutputStream

from pipelines.runner.spill import Sorter, Spool

CHUNK_BYTES = 1 << 20  # of output taken from a worker in this process, and of groups handed to any
BUNDLES_PER_WORKER = 8  # at least, where groups are few and workers several: none waits long for the others' last
CONSOLIDATE_EVERY = 16  # bundles whose metrics wait to be added up

Inputs = Mapping[str, Iterable[bytes]]  # id of a reading transform -> encoded elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run holds in memory, in bytes.

    Attributes:
        bundle: of a bundle's input; a chunk, up to 10 MB from a worker process, is never cut.
        held: of a PCollection's elements between stages.
        run: of a GroupByKey's elements while they are gathered.
    """

    bundle: int = 4 << 20
    held: int = 1 << 18
    run: int = 8 << 20


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class _WorkerProcess(SubprocessSdkWorkerHandler):
    """A worker process that ends though it connects after its run has failed; Beam would wait for it for ever."""

    def close(self) -> None:
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)
        super().close()


class SpillingRunner(FnApiRunner):
    """Beam's local runner, bounded in memory."""

    def __init__(self, *, limits: Limits | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._limits = limits or Limits()

    def _get_bundle_manager(self, bundle_context_manager: Any) -> _BoundedBundles:
        return _BoundedBundles(bundle_context_manager, self._limits)


class _Groups:
    """The buffer of a GroupByKey: takes encoded (key, value), gives encoded (key, values).

    Beam's own buffer does the grouping proper, of some groups at a time: those that were sorted next to each other.
    """

    def __init__(self, beams: GroupingBuffer, limits: Limits) -> None:
        self._beams = partial(GroupingBuffer, beams._pre_grouped_coder, beams._post_grouped_coder, beams._windowing)
        self._key = beams._key_coder.get_impl()
        self._element = beams._pre_grouped_coder.get_impl()
        self._sorter = Sorter(run_bytes=limits.run)

    def append(self, elements: bytes) -> None:
        stream, add = create_InputStream(elements), self._sorter.add
        decode, encode_key = self._element.decode_from_stream, self._key.encode
        end = total = len(elements)
        while end > 0:
            begin = end
            key, _ = decode(stream, True).value
            end = stream.size()
            add(encode_key(key), elements[total - begin : total - end])

    def extend(self, other: Any) -> None:
        if isinstance(other, _Groups):
            for key, contents in other._sorter.groups():
                for content in contents:
                    self._sorter.add(key, content)

    def copy(self) -> _Groups:
        return self

    def spill(self, *, held_bytes: int) -> None:
        self._sorter.spill(held_bytes=held_bytes)

    @property
    def size(self) -> int:
        return self._sorter.size

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks(CHUNK_BYTES)

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """Yield encoded groups, about so many bytes at a time."""
        some, size = self._beams(), 0
        for _, contents in self._sorter.groups():
            elements = b"".join(contents)
            some.append(elements)
            size += len(elements)
            if size >= chunk_bytes:
                yield from some
                some, size = self._beams(), 0
        yield from some


class _BoundedBundles:
    """Runs a stage in bundles of bounded size: takes the place of Beam's `BundleManager` and its parallel kin."""

    def __init__(self, stage: Any, limits: Limits) -> None:
        self._stage = stage
        self._limits = limits

    def process_bundle(
        self,
        inputs: Inputs,
        expected_outputs: Mapping[str, bytes],
        fired_timers: Mapping[Any, Any],
        expected_output_timers: Mapping[Any, Any],
        dry_run: bool = False,
    ) -> tuple[Any, list[Any]]:
        """Return the results of all bundles as if they were one, and no splits."""
        outputs = {name: self._buffer(name, buffer) for name, buffer in expected_outputs.items()}
        is_whole = bool(expected_output_timers)  # a timer fires in a bundle, not in each
        workers = self._stage.worker_handlers
        if is_whole or self._stage.stage.is_stateful():  # a key's state is one worker's at a time
            workers = workers[:1]
        bundles = (part for part in [inputs]) if is_whole else _cut(inputs, self._bundle_bytes(inputs, len(workers)))
        lock = threading.Lock()

        def take() -> Inputs | None:
            with lock:
                return next(bundles, None)

        rest = expected_outputs, fired_timers, expected_output_timers, dry_run
        work = partial(self._work, iter(take, None), outputs, rest)
        if len(workers) == 1:
            results = work(workers[0])
        else:
            with ThreadPoolExecutor(len(workers)) as pool:
                working = [pool.submit(work, worker) for worker in workers]
                try:
                    wait(working, return_when=FIRST_EXCEPTION)
                finally:
                    with lock:
                        bundles.close()  # all are taken, or nobody is to take any more
            results = [result for worker in working for result in worker.result()]
        for buffer in outputs.values():
            if isinstance(buffer, _Groups):
                buffer.spill(held_bytes=self._limits.held)
        return _merge(results), []

    def _bundle_bytes(self, inputs: Inputs, workers: int) -> int:
        """Return the size of a bundle: small enough for several to every worker, if there is a choice."""
        if workers == 1:
            return self._limits.bundle
        total = sum(getattr(buffer, "size", 0) for buffer in inputs.values())
        return max(1, min(self._limits.bundle, total // (workers * BUNDLES_PER_WORKER)))

    def _work(
        self, bundles: Iterator[Inputs | None], outputs: Mapping[str, Any], rest: Sequence[Any], worker: Any
    ) -> list[Any]:
        """Return the results of the bundles that one worker took."""
        stage = copy(self._stage)
        stage._worker_handlers = [worker]
        manager = BundleManager(stage, cache_token_generator=FnApiRunner.get_cache_token_generator(static=False))
        results: list[Any] = []
        with _taken_at_once(worker, outputs):
            for bundle in bundles:
                results.append(manager.process_bundle(bundle, *rest)[0])
                if len(results) >= CONSOLIDATE_EVERY:
                    results = [_merge(results)]
        return results

    def _buffer(self, name: str, buffer_id: bytes) -> Any:
        """Return the buffer of an output, made on the first call, where Beam looks for it."""
        buffers = self._stage.execution_context.pcoll_buffers
        if buffer_id not in buffers:
            beams = self._stage.get_buffer(buffer_id, name)
            is_grouping = isinstance(beams, GroupingBuffer)
            buffers[buffer_id] = _Groups(beams, self._limits) if is_grouping else Spool(held_bytes=self._limits.held)
        return buffers[buffer_id]


def _cut(inputs: Inputs, bundle_bytes: int) -> Generator[Inputs, None, None]:
    """Yield the inputs of a stage in parts of about so many bytes: at least one, each with all names."""
    nothing: dict[str, Iterable[bytes]] = dict.fromkeys(inputs, ())
    is_first = True
    for name, buffer in inputs.items():
        chunks = buffer.chunks(min(bundle_bytes, CHUNK_BYTES)) if isinstance(buffer, _Groups) else buffer
        some: list[bytes] = []
        size = 0
        for chunk in chunks:
            some.append(chunk)
            size += len(chunk)
            if size >= bundle_bytes:
                yield nothing | {name: some}
                is_first, some, size = False, [], 0
        if size:
            yield nothing | {name: some}
            is_first = False
    if is_first:
        yield nothing


@contextmanager
def _taken_at_once(worker: Any, outputs: Mapping[str, Any]) -> Iterator[None]:
    """Let what a worker in this process writes go straight to the buffers; from another process it streams anyway."""
    if not isinstance(worker, EmbeddedWorkerHandler):
        yield
        return

    def output_stream(_: str, transform_id: str) -> SizeBasedBufferingClosableOutputStream:
        take = outputs[transform_id].append
        return SizeBasedBufferingClosableOutputStream(take, flush_callback=take, size_flush_threshold=CHUNK_BYTES)

    channel = worker.data_conn.inverse()
    channel.output_stream = output_stream  # of this one channel, for these bundles
    try:
        yield
    finally:
        del channel.output_stream


def _merge(results: Sequence[Any]) -> Any:
    """Return the responses of several bundles as one: metrics added up, what is left to do put together."""
    first, *others = results
    for other in others:
        first.process_bundle.residual_roots.extend(other.process_bundle.residual_roots)
    infos = list(consolidate(info for result in results for info in result.process_bundle.monitoring_infos))
    del first.process_bundle.monitoring_infos[:]
    first.process_bundle.monitoring_infos.extend(infos)
    return first
