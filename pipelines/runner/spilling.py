"""Beam's local runner with its PCollections in files: the memory of a run does not grow with its elements.

Beam's `FnApiRunner` runs a pipeline stage by stage, each as one bundle a worker: a stage's whole input, its whole
output and every group wait in memory. `SpillingRunner` is that runner, its translation, workers and state untouched,
with

- outputs in a `Spool`, and groups in a `Sorter`, in place of `ListBuffer` and `GroupingBuffer`;
- a stage's input cut into bundles of a bounded size, handed to whichever worker is free;
- what an in-process worker puts out taken from it at once, instead of when its bundle has ended;
- worker processes told to end all at once, where Beam waits half a second for one after the other.

One element, and one group of a GroupByKey, still have to fit into memory. Side inputs are in memory as in Beam: of
bounded size, please. Groups come sorted by encoded key rather than in order of arrival.

What it relies on in `apache_beam.runners.portability.fn_api_runner` (2.77), which is no public interface, and what
`tests/pipelines/runner/test_spilling.py` checks: `FnApiRunner._get_bundle_manager`, whose result has `process_bundle`;
`BundleManager`, which runs one bundle on `bundle_context_manager.worker_handlers`; `BundleContextManager.get_buffer`,
which looks a buffer up in `execution_context.pcoll_buffers` before it makes one; the four methods called on a buffer
(append, extend, copy, iteration); the attributes of `GroupingBuffer` that hold its coders; and
`WorkerHandlerManager.close_all`, which ends workers by a marker in the queue of their `control_conn`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from apache_beam.coders.coder_impl import create_InputStream, create_OutputStream
from apache_beam.metrics.monitoring_infos import consolidate
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.execution import GroupingBuffer
from apache_beam.runners.portability.fn_api_runner.fn_runner import BundleManager
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    EmbeddedWorkerHandler,
    GrpcWorkerHandler,
    WorkerHandlerManager,
)
from apache_beam.runners.worker.data_plane import SizeBasedBufferingClosableOutputStream
from apache_beam.transforms.trigger import create_trigger_driver
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming

from pipelines.runner.spill import HELD_BYTES, RUN_BYTES, Sorter, Spool

BUNDLE_BYTES = 4 << 20  # of a bundle's input; a chunk, up to 10 MB from a worker process, is never cut
CHUNK_BYTES = 1 << 20  # of output taken from a worker in this process, and of groups handed to any
BUNDLES_PER_WORKER = 8  # at least, where groups are few and workers several: none waits long for the others' last
CONSOLIDATE_EVERY = 16  # bundles whose metrics wait to be added up
_ONLY_PANE = PaneInfo(is_first=True, is_last=True, timing=PaneInfoTiming.ON_TIME, index=0, nonspeculative_index=0)

Inputs = Mapping[str, Iterable[bytes]]  # id of a reading transform -> encoded elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run holds in memory, in bytes.

    Attributes:
        bundle: of a bundle's input.
        held: of a PCollection's elements between stages.
        run: of a GroupByKey's elements while they are gathered.
    """

    bundle: int = BUNDLE_BYTES
    held: int = HELD_BYTES
    run: int = RUN_BYTES


class SpillingRunner(FnApiRunner):
    """Beam's local runner, bounded in memory."""

    def __init__(self, *, limits: Limits | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._limits = limits or Limits()

    def _get_bundle_manager(self, bundle_context_manager: Any) -> _BoundedBundles:
        manager = bundle_context_manager.execution_context.worker_handler_manager
        manager.close_all = partial(_close_all, manager, bundle_context_manager.worker_handlers)
        return _BoundedBundles(bundle_context_manager, self._limits)


class _Groups:
    """The buffer of a GroupByKey: takes encoded (key, value), gives encoded (key, values)."""

    def __init__(self, beams: GroupingBuffer, limits: Limits) -> None:
        self._key = beams._key_coder.get_impl()
        self._element = beams._pre_grouped_coder.get_impl()
        self._group = beams._post_grouped_coder.get_impl()
        self._windowing = beams._windowing
        self._sorter = Sorter(run_bytes=limits.run, held_bytes=limits.held)

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

    def settle(self) -> None:
        self._sorter.settle()

    @property
    def size(self) -> int:
        return self._sorter.size

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks(CHUNK_BYTES)

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """Yield encoded groups, about so many bytes at a time."""
        windowed = self._in_one_window if self._windowing.is_default() else self._by_trigger
        stream = create_OutputStream()
        for encoded_key, elements in self._sorter.groups():
            for group in windowed(self._key.decode(encoded_key), map(self._decode, elements)):
                self._group.encode_to_stream(group, stream, True)
            if stream.size() >= chunk_bytes:
                yield stream.get()
                stream = create_OutputStream()
        yield stream.get()

    def _decode(self, element: bytes) -> Any:
        return self._element.decode_from_stream(create_InputStream(element), True)

    def _in_one_window(self, key: Any, elements: Iterable[Any]) -> Iterator[Any]:
        group = (key, [element.value[1] for element in elements])
        yield GlobalWindows.windowed_value(group, timestamp=GlobalWindow().max_timestamp(), pane_info=_ONLY_PANE)

    def _by_trigger(self, key: Any, elements: Iterable[Any]) -> Iterator[Any]:
        values = [element.with_value(element.value[1]) for element in elements]
        yield from create_trigger_driver(self._windowing, True).process_entire_key(key, values)


class _OneWorker:
    """What a `BundleManager` asks of its stage, where one worker is all there is."""

    def __init__(self, stage: Any, worker: Any) -> None:
        self._stage = stage
        self.worker_handlers = [worker]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)


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
        bundles = _Shared(iter([inputs]) if is_whole else _cut(inputs, self._bundle_bytes(inputs, len(workers))))
        run = partial(self._work, bundles, outputs, (expected_outputs, fired_timers, expected_output_timers, dry_run))
        if len(workers) == 1:
            results = [run(workers[0])]
        else:
            with ThreadPoolExecutor(len(workers)) as pool:
                results = list(pool.map(run, workers))
        for buffer in outputs.values():
            if isinstance(buffer, _Groups):
                buffer.settle()
        return _merge([each for some in results for each in some]), []

    def _bundle_bytes(self, inputs: Inputs, workers: int) -> int:
        """Return the size of a bundle: small enough for several to every worker, if there is a choice."""
        if workers == 1:
            return self._limits.bundle
        total = sum(getattr(buffer, "size", 0) for buffer in inputs.values())
        return max(1, min(self._limits.bundle, total // (workers * BUNDLES_PER_WORKER)))

    def _work(self, bundles: _Shared, outputs: Mapping[str, Any], rest: Sequence[Any], worker: Any) -> list[Any]:
        """Return the results of the bundles that one worker took."""
        tokens = FnApiRunner.get_cache_token_generator(static=False)
        manager = BundleManager(_OneWorker(self._stage, worker), cache_token_generator=tokens)
        results: list[Any] = []
        try:
            with _taken_at_once(worker, outputs):
                for bundle in bundles:
                    result, _ = manager.process_bundle(bundle, *rest)
                    results.append(result)
                    if len(results) >= CONSOLIDATE_EVERY:
                        results = [_merge(results)]
        except BaseException:
            bundles.stop()
            raise
        return results

    def _buffer(self, name: str, buffer_id: bytes) -> Any:
        """Return the buffer of an output, made on the first call, where Beam looks for it."""
        buffers = self._stage.execution_context.pcoll_buffers
        if buffer_id not in buffers:
            beams = self._stage.get_buffer(buffer_id, name)
            is_grouping = isinstance(beams, GroupingBuffer)
            buffers[buffer_id] = _Groups(beams, self._limits) if is_grouping else Spool(held_bytes=self._limits.held)
        return buffers[buffer_id]


class _Shared:
    """An iterator that several threads take from."""

    def __init__(self, items: Iterator[Inputs]) -> None:
        self._items = items
        self._lock = threading.Lock()

    def __iter__(self) -> _Shared:
        return self

    def __next__(self) -> Inputs:
        with self._lock:
            return next(self._items)

    def stop(self) -> None:
        """Let nobody take any more."""
        with self._lock:
            self._items = iter(())


def _cut(inputs: Inputs, bundle_bytes: int) -> Iterator[Inputs]:
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


def _close_all(manager: WorkerHandlerManager, workers: Iterable[Any]) -> None:
    """Close a run's workers, all of them told to end before the first is waited for."""
    for worker in workers:
        if isinstance(worker, GrpcWorkerHandler):
            worker.control_conn.push(BeamFnControlServicer._DONE_MARKER)
    WorkerHandlerManager.close_all(manager)


def _merge(results: Sequence[Any]) -> Any:
    """Return the responses of several bundles as one: metrics added up, what is left to do put together."""
    first, *others = results
    for other in others:
        first.process_bundle.residual_roots.extend(other.process_bundle.residual_roots)
    infos = list(consolidate(info for result in results for info in result.process_bundle.monitoring_infos))
    del first.process_bundle.monitoring_infos[:]
    first.process_bundle.monitoring_infos.extend(infos)
    return first
