"""The runner that spills gives what Beam's own gives, in small bundles, and what it leans on in Beam is still there.

What is spilled comes back: chunks in order, records grouped and sorted, and no file stays behind.
"""

import contextlib
import errno
import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, execution, fn_runner, worker_handlers
from apache_beam.runners.worker import data_plane
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st

from pipelines.runner import spill
from pipelines.runner.spill import Sorter, Spool
from pipelines.runner.spilling import Limits, SpillingRunner
from schemas.messages import BuildError

COUNT = 200  # of the elements that are put through
TIGHT = Limits(bundle=200, held=50, run=500)  # a dozen of elements below fill any of them


class Mark(beam.DoFn):
    """Counts bundles; passes elements on."""

    def start_bundle(self) -> None:
        Metrics.counter("test", "bundles").inc()

    def process(self, element: Any) -> Iterator[Any]:
        Metrics.counter("test", "elements").inc()
        yield element


def remainder(number: int) -> tuple[str, int]:
    return f"remainder {number % 7}", number


def tell(group: tuple[str, Iterable[int]], names: dict[str, str], total: int) -> tuple[str, tuple[int, ...], str, int]:
    key, numbers = group
    return key, tuple(sorted(numbers)), names[key], total


def joined(group: tuple[str, tuple[Iterable[int], Iterable[str]]]) -> tuple[str, int, list[str]]:
    key, (numbers, words) = group
    return key, len(list(numbers)), sorted(words)


def with_initial(text: str) -> tuple[str, str]:
    return f"remainder {len(text) % 9}", text


def assemble(root: beam.Pipeline) -> dict[str, beam.PCollection]:
    """Add one of each kind of step that a build is made of."""
    numbers = root | "numbers" >> beam.Create(range(COUNT)) | "mix" >> beam.Reshuffle() | beam.ParDo(Mark())
    words = root | "words" >> beam.Create(["", "a", "bb", "ccc", "b" * 2_000])
    keyed = numbers | "key" >> beam.Map(remainder)
    names = {f"remainder {n}": "x" * n for n in range(7)}
    side = root | "names" >> beam.Create(list(names.items()))
    total = numbers | "add up" >> beam.CombineGlobally(sum)
    groups = keyed | "group" >> beam.GroupByKey()
    return {
        "groups": groups
        | "tell" >> beam.Map(tell, names=beam.pvalue.AsDict(side), total=beam.pvalue.AsSingleton(total)),
        "joined": (keyed, words | "by length" >> beam.Map(with_initial))
        | "join" >> beam.CoGroupByKey()
        | beam.Map(joined),
        "sums": keyed | "sums" >> beam.CombinePerKey(sum),
        "both": (numbers, numbers | "negate" >> beam.Map(int.__neg__)) | beam.Flatten() | "once" >> beam.Distinct(),
        "nothing": numbers | "none" >> beam.Filter(bool.__instancecheck__) | "of none" >> beam.Distinct(),
    }


def expected() -> dict[str, list[Any]]:
    """Return the same by plain Python."""
    groups = {f"remainder {n}": [number for number in range(COUNT) if number % 7 == n] for n in range(7)}
    words: dict[str, list[str]] = {}
    for word in ("", "a", "bb", "ccc", "b" * 2_000):
        words.setdefault(f"remainder {len(word) % 9}", []).append(word)
    total = sum(range(COUNT))
    return {
        "groups": [(f"remainder {n}", tuple(groups[f"remainder {n}"]), "x" * n, total) for n in range(7)],
        "joined": [(key, len(groups.get(key, [])), words.get(key, [])) for key in {*groups, *words}],
        "sums": [(key, sum(numbers)) for key, numbers in groups.items()],
        "both": list(range(1 - COUNT, COUNT)),
        "nothing": [],
    }


def run(runner: FnApiRunner, *options: str) -> Any:
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(options)))
    for name, found in assemble(pipeline).items():
        assert_that(found, equal_to(expected()[name]), label=name)
    result = pipeline.run()
    result.wait_until_finish()
    return result


def counted(result: Any, name: str) -> int:
    (counter,) = result.metrics().query(MetricsFilter().with_name(name))["counters"]
    return int(counter.committed)


def test_results_are_those_of_beams_own_runner_in_small_bundles() -> None:
    whole, cut = run(FnApiRunner()), run(SpillingRunner(limits=TIGHT))
    assert counted(whole, "elements") == counted(cut, "elements") == COUNT
    assert counted(whole, "bundles") == 1 and counted(cut, "bundles") > 10


@pytest.mark.slow
def test_several_processes_share_the_bundles() -> None:
    result = run(SpillingRunner(limits=TIGHT), "--direct_num_workers=2", "--direct_running_mode=multi_processing")
    assert counted(result, "elements") == COUNT and counted(result, "bundles") > 10


class Parity(beam.DoFn):
    """Counts the elements of a key in Beam's state."""

    SEEN = beam.transforms.userstate.CombiningValueStateSpec("seen", sum)

    def process(
        self,
        element: tuple[str, int],
        seen: Any = beam.DoFn.StateParam(SEEN),  # noqa: B008
    ) -> Iterator[tuple[str, int]]:
        seen.add(1)
        yield element[0], seen.read()


def test_state_of_a_key_lasts_from_bundle_to_bundle() -> None:
    with beam.Pipeline(runner=SpillingRunner(limits=TIGHT)) as pipeline:
        keyed = pipeline | beam.Create(range(70)) | "mix" >> beam.Reshuffle() | "key" >> beam.Map(remainder)
        counts = keyed | beam.ParDo(Parity())
        assert_that(counts, equal_to([(f"remainder {n}", count) for n in range(7) for count in range(1, 11)]))


def fail_at_200(number: int) -> int:
    if number == 200:
        raise ValueError("number 200 is not wanted")
    return number


def test_a_failure_ends_the_run_with_its_reason() -> None:
    pipeline = beam.Pipeline(runner=SpillingRunner(limits=TIGHT))
    _ = pipeline | beam.Create(range(500)) | "mix" >> beam.Reshuffle() | beam.Map(fail_at_200)
    with pytest.raises(ValueError, match="number 200 is not wanted"):
        pipeline.run()


def test_beam_still_has_what_the_runner_leans_on() -> None:
    """A change here is no mistake of Beam's: read `spilling` again against the new version."""

    process = ["inputs", "expected_outputs", "fired_timers", "expected_output_timers", "dry_run"]
    parameters = {
        fn_runner.BundleManager.process_bundle: process,
        fn_runner.BundleManager.__init__: ["bundle_context_manager", "progress_frequency", "cache_token_generator"],
        FnApiRunner._get_bundle_manager: ["bundle_context_manager"],
        execution.BundleContextManager.get_buffer: ["buffer_id", "transform_id"],
        execution.GroupingBuffer.__init__: ["pre_grouped_coder", "post_grouped_coder", "windowing"],
        data_plane.InMemoryDataChannel.output_stream: ["instruction_id", "transform_id"],
    }
    found = {each: list(inspect.signature(each).parameters)[1 : 1 + len(names)] for each, names in parameters.items()}
    assert found == parameters
    assert "kind == 'group'" in inspect.getsource(execution.BundleContextManager.get_buffer)
    for kind in (execution.ListBuffer, execution.GroupingBuffer):
        methods = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("__")}
        assert methods == {"append", "extend", "copy", "partition", "clear", "reset"}
    worker_handlers_of_a_stage = inspect.getsource(execution.BundleContextManager.worker_handlers.fget)
    assert "return self._worker_handlers" in worker_handlers_of_a_stage
    assert "data_conn" in inspect.getsource(worker_handlers.EmbeddedWorkerHandler.__init__)


CHUNKS = st.lists(st.binary(max_size=40), max_size=30)
RECORDS = st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=20)), max_size=200)


def open_spill_files(pid: int | str = "self") -> int:
    """Return how many unnamed files a process has open."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            count += str(entry.readlink()).endswith("(deleted)")
    return count


@given(CHUNKS, CHUNKS, st.integers(0, 200))
def test_a_spool_gives_back_what_was_added_in_order(first: list[bytes], more: list[bytes], held_bytes: int) -> None:
    spool = Spool(held_bytes=held_bytes)
    for chunk in first:
        spool.append(chunk)
    twin = spool.copy()
    twin.extend(more)
    assert [b"".join(spool) for _ in range(2)] == [b"".join(first)] * 2  # as often as wanted
    assert b"".join(twin) == b"".join(first + more)
    spool.extend(twin)
    assert b"".join(spool) == b"".join(first + first + more)


@given(RECORDS, st.sampled_from([1, 400, 3_000, 1 << 20]), st.booleans())
def test_a_sorter_groups_by_key_and_keeps_the_order_within(
    records: list[tuple[bytes, bytes]], run_bytes: int, is_spilled: bool
) -> None:
    sorter = Sorter(run_bytes=run_bytes)
    expected: dict[bytes, list[bytes]] = {}
    for key, content in records:
        sorter.add(key, content)
        expected.setdefault(key, []).append(content)
    if is_spilled:
        sorter.spill()
    assert [list(sorter.groups()) for _ in range(2)] == [sorted(expected.items())] * 2


def test_many_runs_are_merged_and_one_file_is_open() -> None:
    before = open_spill_files()
    sorter = Sorter(run_bytes=1)
    for number in range(100):  # a run each
        sorter.add(bytes([number * 37 % 101]), bytes([number]))
    assert open_spill_files() - before == 1
    found = list(sorter.groups())
    assert found == sorted((bytes([number * 37 % 101]), [bytes([number])]) for number in range(100))
    del sorter, found
    assert open_spill_files() == before


def test_a_full_disk_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    file = spill.SpillFile()
    monkeypatch.setattr(file, "_file", Mock(write=Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))))
    with pytest.raises(BuildError, match=r"temporary files in .*: No space left on device; TMPDIR names another"):
        file.append(b"x")


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    script = (
        "from pipelines.runner.spill import Spool\n"
        "spool = Spool(held_bytes=0)\n"
        "spool.append(b'x' * 1000)\n"
        "print('written', flush=True)\n"
        "input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        assert open_spill_files(process.pid) == 1
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []
