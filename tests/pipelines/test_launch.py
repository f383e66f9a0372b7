"""Errors out of a pipeline: a mistake comes back as itself, one line; anything else as it was raised."""

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from types import MethodType
from typing import Any
from unittest.mock import Mock

import apache_beam as beam
import pytest
from apache_beam.transforms import core, userstate

from pipelines import launch
from pipelines.launch import (
    Sign,
    _function,
    _read_once,
    cancel_job,
    java_error,
    processes_of_machine,
    run_pipeline,
)
from pipelines.settings import Runner
from schemas.lake import Folder
from schemas.messages import BuildError, UsageError


def fail(_: None, kind: Any) -> None:  # Beam compares types of arguments with annotations
    raise kind("docs.json: expected a list, found text")


def assemble(root: beam.Pipeline, kind: type[Exception]) -> None:
    _ = root | beam.Create([None]) | "fail here" >> beam.Map(fail, kind)


# A thread of Beam's may find its connection closed when a worker process has failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_error_of_ours_keeps_its_kind_and_its_words(workers: int) -> None:
    with pytest.raises(BuildError) as caught:
        run_pipeline(partial(assemble, kind=BuildError), runner=Runner.LOCAL, workers=workers)
    assert str(caught.value) == "docs.json: expected a list, found text"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.slow
def test_a_failed_run_ends_though_a_worker_connects_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam tells those workers that are connected that the run is over, and waits for the end of all."""
    start = shlex.join(launch._with_parent("apache_beam.runners.worker.sdk_worker_main"))
    late = f"mkdir {shlex.quote(str(tmp_path / 'first'))} 2>/dev/null || sleep 5; exec {start}"
    monkeypatch.setattr(launch, "_with_parent", lambda module: ["sh", "-c", late])
    with pytest.raises(BuildError, match="expected a list"):
        run_pipeline(partial(assemble, kind=BuildError), runner=Runner.LOCAL, workers=2)


def test_any_other_error_is_not_dressed_up() -> None:
    with pytest.raises(ValueError, match="fail here"):
        run_pipeline(partial(assemble, kind=ValueError), runner=Runner.LOCAL, workers=1)


class Repeat(beam.DoFn):
    def process(self, element: int, times: int = 2) -> Iterator[int]:
        yield from [element] * times


class Plain(beam.DoFn):
    def process(self, element: tuple[str, int]) -> Iterator[int]:
        yield element[1]


class Count(beam.DoFn):
    STATE = userstate.CombiningValueStateSpec("count", sum)

    def process(self, element: tuple[str, int], count: Any = beam.DoFn.StateParam(STATE)) -> Iterator[int]:  # noqa: B008 - Beam's own way
        count.add(element[1])
        yield count.read()


def test_state_is_found_where_a_class_or_an_instance_has_it() -> None:
    borrowing = Plain()
    borrowing.process = MethodType(Count.process, borrowing)  # type: ignore[method-assign]
    found = [userstate.is_stateful_dofn(step) for step in (Plain(), Count(), borrowing, Plain())]
    assert found == [False, True, True, False]


def test_what_a_method_has_is_read_once() -> None:
    read = Mock(side_effect=lambda function: (["element", "times"], [2]))
    read_once = _read_once(read, _function)
    for step in (Repeat(), Repeat()):
        found = read_once(step.process)
        assert found == (["element", "times"], [2])
        found[1].append(3)  # whoever asks may change what it gets
    assert read.call_count == 1
    for _ in range(2):
        read_once(fail)
    assert read.call_count == 3


BEGAN, ENDED = Event(), Event()


def begin_second(_: int) -> None:
    assert BEGAN.wait(60)


def end_last(_: int) -> None:
    BEGAN.set()
    assert ENDED.wait(60)


def test_two_runs_in_two_threads_leave_the_process_as_it_was() -> None:
    """The first begins before the second and ends within it."""
    before = (os.environ.copy(), tempfile.gettempdir(), core.get_function_args_defaults, sys.modules.get("IPython"))

    def run(function: Callable[[int], None]) -> None:
        run_pipeline(lambda root: root | beam.Create([1]) | beam.Map(function), runner=Runner.LOCAL, workers=1)

    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(run, function) for function in (begin_second, end_last)]
        runs[0].result()
        ENDED.set()
        runs[1].result()
    after = (os.environ.copy(), tempfile.gettempdir(), core.get_function_args_defaults, sys.modules.get("IPython"))
    assert after == before
    with tempfile.TemporaryFile():
        pass


@pytest.mark.parametrize(
    ("runner", "workers", "options", "processes"),
    [
        (Runner.LOCAL, 3, [], 3),
        (Runner.PORTABLE, 2, ["--sdk_worker_parallelism=8"], 8),
        (Runner.FLINK, 1, ["--flink_master=localhost:8081", "--parallelism=4"], 1),
        (Runner.FLINK, 1, ["--sdk_worker_parallelism=4"], 4),
        (Runner.SPARK, 1, ["--sdk_worker_parallelism", "0"], 0),
        (Runner.DATAFLOW, 1, [], 0),
    ],
)
def test_processes_that_share_a_machine_are_those_that_its_engine_starts(
    runner: Runner, workers: int, options: list[str], processes: int
) -> None:
    assert processes_of_machine(runner, workers, options) == processes


@pytest.mark.parametrize(
    ("runner", "workers", "words"), [(Runner.LOCAL, 0, "--workers 0"), (Runner.PORTABLE, 1, "--job_endpoint=HOST:PORT")]
)
def test_no_worker_and_no_job_service_are_mistakes(runner: Runner, workers: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run_pipeline(partial(assemble, kind=ValueError), runner=runner, workers=workers)


def test_what_an_engine_says_is_one_line() -> None:
    first = "Pipeline x failed in state FAILED: org.apache.spark.SparkException: Job aborted\n\tat a.b(C.java:1)"
    told = "the spark runner failed: org.apache.spark.SparkException: Job aborted"
    assert str(java_error(Runner.SPARK, first)) == told
    chain = "failed in state FAILED: java.lang.Exception: a\n\tat a.b(C.java:1)\nCaused by: java.io.IOException: full"
    assert str(java_error(Runner.FLINK, chain)) == "the flink runner failed: java.io.IOException: full"
    assert java_error(Runner.FLINK, "KeyError: 'x'") is None


def test_the_first_worker_leaves_a_sign(tmp_path: Path) -> None:
    sign = Sign(Folder(str(tmp_path)))
    assert sign.name != Sign(Folder(str(tmp_path))).name  # of two runs at once each has its own
    assert sign.leave("dump") == "dump"
    assert [path.name for path in tmp_path.iterdir()] == [sign.name]


def test_a_cancelled_run_cancels_its_job_of_flink_and_no_other() -> None:
    """By the two requests of Flink's REST interface that its documentation names."""
    from loopback import answering  # workers import this file, and find no other of the tests

    jobs = [
        {"jid": "1a", "name": "multilink-mine", "state": "RUNNING"},
        {"jid": "2b", "name": "multilink-other", "state": "RUNNING"},
        {"jid": "3c", "name": "multilink-mine", "state": "FINISHED"},
        {"jid": "4d", "name": "multilink-mine", "state": "CREATED"},
    ]
    asked: list[tuple[str, str]] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        asked.append((request.command, request.path))
        is_read = request.command == "GET"
        return 200 if is_read else 202, json.dumps({"jobs": jobs} if is_read else {}).encode(), {}

    with answering(answer) as port:
        assert cancel_job([f"--flink_master=127.0.0.1:{port}", "--job_name=multilink-mine"]) == ["1a", "4d"]
    patched = [("PATCH", f"/jobs/{key}?mode=cancel") for key in ("1a", "4d")]
    assert asked == [("GET", "/jobs/overview"), *patched]
    assert cancel_job(["--flink_master=[local]", "--job_name=x"]) == cancel_job(["--job_name=x"]) == []


def test_an_interrupted_run_is_cancelled_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, cancel_job = Event(), Mock()
    run = Mock(wait_until_finish=Mock(side_effect=ended.wait), cancel=Mock(side_effect=ended.set))
    monkeypatch.setattr("pipelines.launch.cancel_job", cancel_job)
    monkeypatch.setattr("pipelines.launch.WORKER_TIMEOUT_S", 0.01)
    with pytest.raises(BuildError, match="no Beam worker began"):
        Sign(Folder(str(tmp_path))).await_end(run, ["--job_name=x"])
    run.cancel.assert_called_once_with()
    cancel_job.assert_called_once_with(["--job_name=x"])
