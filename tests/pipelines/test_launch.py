"""Errors out of a pipeline: a mistake comes back as itself, one line; anything else as it was raised."""

from __future__ import annotations

from functools import partial

import apache_beam as beam
import pytest

from pipelines.launch import Runner, run_pipeline
from schemas.errors import BuildError, UsageError


def fail(_: None, kind: type[Exception]) -> None:
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


def test_any_other_error_is_not_dressed_up() -> None:
    with pytest.raises(ValueError, match="fail here"):
        run_pipeline(partial(assemble, kind=ValueError), runner=Runner.LOCAL, workers=1)


def test_no_worker_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="--workers 0"):
        run_pipeline(partial(assemble, kind=ValueError), runner=Runner.LOCAL, workers=0)
