"""A request is answered by the version it gave before, for as long as its failures are remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.run import answered, memory_lines, remember
from pipelines.shards.manifest import DocumentSize, summarise
from schemas.lake import Lake
from schemas.manifest import MANIFEST, Manifest

HOUR_S = 3600.0


def version_in(lake: Lake, failures: dict[str, int]) -> Manifest:
    manifest = Manifest(
        dataset="diy",
        version="v1",
        files=(),
        splits={"train": summarise({DocumentSize(1, 1, None): 20}, 20)},
        failures=failures,
        stages={},
        config={},
        inputs={},
        schema_versions={},
    )
    lake.dataset("diy", "v1").write(MANIFEST, manifest.to_json().encode())
    return manifest


@pytest.mark.parametrize(
    ("failures", "retry_after_s", "is_answered"),
    [
        ({"low-score": 3, "not-found": 1}, -1.0, True),  # for good
        ({"timed-out": 1}, HOUR_S, True),  # for a while
        ({"timed-out": 1}, -1.0, False),
        ({"http-error": 3, "timed-out": 3}, HOUR_S, False),  # too many: the next build asks again
    ],
)
def test_a_request_is_answered_while_its_failures_are_remembered(
    tmp_path: Path, failures: dict[str, int], retry_after_s: float, is_answered: bool
) -> None:
    lake = Lake.at(str(tmp_path))
    manifest = version_in(lake, failures)
    remember(lake, "request", manifest, retry_after_s=retry_after_s)
    found = answered(lake, "diy", "request")
    assert (found is not None and found.version == "v1") is is_answered
    assert answered(lake, "diy", None) is None


def test_the_end_of_a_build_says_what_is_remembered_and_how_to_ask_again() -> None:
    hosts = {("a.test", "not-found"): 2, ("b.test", "not-found"): 3, ("b.test", "timed-out"): 4}
    passing, remembered, again = memory_lines(hosts)
    assert passing.endswith("--ask-again") and " 4;" in passing
    assert "not-found 5" in remembered and again.endswith("--ask-again-all")
    assert memory_lines({("a.test", "robots-denied"): 1}) == []
