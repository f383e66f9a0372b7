"""What a person reads of a version: reasons with an example each, rows of failures, failures by host."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.card.show import (
    commonest_messages,
    explain_failures,
    failure_rows,
    failures_by_host,
    host_lines,
)
from pipelines.shards.writing import write_rows
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, commit
from schemas.tables import records_table, row_of

FAILURES = [
    *(Failure(Stage.SOURCES, f"r{number}", Reason.LOW_SCORE, f"score {number}") for number in range(3)),
    Failure(Stage.IMAGES, "d1", Reason.NOT_FOUND, "\x1b[31mhttp://a/b.jpg:\n 404", image=0),
]


def make_manifest(**changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "dataset": "diy", "version": "v1", "files": (), "splits": {}, "stages": {}, "config": {}, "inputs": {},
        "schema_versions": {}, "failures": {"low-score": 3, "not-found": 1},
    }  # fmt: skip
    return Manifest(**(values | changes))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.at(str(tmp_path / "lake"))
    folder = lake.dataset("diy", "v1")
    entries = [
        write_rows(folder, f"failures/part-{number}.parquet", [*map(row_of, part)], FAILURE_SCHEMA)
        for number, part in enumerate((FAILURES[:2], FAILURES[2:]))
    ]
    commit(lake, make_manifest(files=tuple(entries)))
    return lake


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["datasets", *arguments])


def tables(failures: Sequence[Failure], size: int) -> list[pa.Table]:
    return [records_table(failures[start : start + size], FAILURE_SCHEMA) for start in range(0, len(failures), size)]


SEVERAL = [
    Failure(Stage.SOURCES, "d3", Reason.LOW_SCORE, "score 3, expected at least 25"),
    Failure(Stage.DOCUMENTS, "d1", Reason.LOW_SCORE, "score 24, expected at least 25"),
    Failure(Stage.SOURCES, "d2", Reason.LOW_SCORE, "no score"),
    Failure(Stage.SOURCES, "x9", Reason.NOT_FOUND, "http://host/a.jpg?x=1: 404"),
    Failure(Stage.SOURCES, "x8", Reason.NOT_FOUND, "https://other/b.jpg: 404"),
    Failure(Stage.SOURCES, "x1", Reason.NOT_FOUND, "'a.png': no such member"),
    Failure(Stage.SOURCES, "b", Reason.BROKEN_RECORD, "no text"),
    Failure(Stage.SOURCES, "a", Reason.BROKEN_RECORD, "no id"),
    Failure(Stage.IMAGES, "d1", Reason.TIMED_OUT, "2 s", image=2),
    Failure(Stage.IMAGES, "d1", Reason.TIMED_OUT, "1 s", image=1),
    Failure(Stage.IMAGES, "d1", Reason.UNREACHED, image=1),
]


@pytest.mark.parametrize("failures", [SEVERAL, SEVERAL[::-1]])
@pytest.mark.parametrize("size", [1, 3, 11])
def test_the_commonest_message_of_a_reason(failures: list[Failure], size: int) -> None:
    """Messages that differ in numbers and addresses alone are one kind; of equals the smallest record is shown."""
    assert commonest_messages(tables(failures, size)) == {
        "low-score": (2, "d1", "score 24, expected at least 25"),
        "not-found": (2, "x8", "https://other/b.jpg: 404"),
        "broken-record": (1, "a", "no id"),
        "timed-out": (2, "image 1 of d1", "1 s"),
        "unreached": (1, "image 1 of d1", ""),
    }


def test_each_reason_has_its_commonest_message_and_a_record() -> None:
    lines = explain_failures(make_manifest(), "/lake/v1", tables(FAILURES[:3], 2))
    assert [" ".join(line.split()) for line in lines] == [
        "low-score 3",
        "3 times: r0: score 0",
        "not-found 1",
        "all failures: /lake/v1/failures",
    ]
    assert explain_failures(make_manifest(failures={}), "/lake/v1", []) == []


def test_what_a_host_says_does_not_reach_the_terminal_raw() -> None:
    evil = [Failure(Stage.SOURCES, "r\x1b[2J", Reason.LOW_SCORE, "a\nb\x07" + 500 * "long ")]
    _, line, _ = explain_failures(make_manifest(failures={"low-score": 1}), "", tables(evil, 1))
    assert line.isprintable() and len(line) < 220


def test_rows_are_found_by_reason_and_stage_in_every_part(lake: Lake) -> None:
    manifest, folder = make_manifest(files=()), lake.dataset("diy", "v1")
    assert failure_rows(manifest, folder, reason=None, stage=None, limit=5) == ([], 0)
    manifest = Manifest.from_json(folder.read("manifest.json").decode())
    rows, total = failure_rows(manifest, folder, reason="low-score", stage=None, limit=2)
    assert ([row["record_id"] for row in rows], total) == (["r0", "r1"], 3)
    rows, total = failure_rows(manifest, folder, reason=None, stage="images", limit=2)
    assert (rows, total) == ([row_of(FAILURES[3])], 1)
    assert failure_rows(manifest, folder, reason="low-score", stage="images", limit=2) == ([], 0)


def test_the_command_prints_rows(lake: Lake) -> None:
    row, summary = run("failures", "diy", "--lake", lake.root.uri, "--reason", "not-found").stdout.splitlines()
    assert row == "images    not-found            image 0 of d1: \ufffd[31mhttp://a/b.jpg: 404"
    assert summary.startswith("diy@v1: 1 of 1 failure rows")


def test_mistakes_are_told(lake: Lake, tmp_path: Path) -> None:
    unknown = run("failures", "diy", "--lake", lake.root.uri, "--reason", "nonsense")
    assert unknown.exit_code == 2 and "--reason" in unknown.output and "broken-record" in unknown.output
    assert "no folder is there" in str(run("list", "--lake", str(tmp_path / "none")).exception)
    Folder(str(tmp_path)).write("empty/x", b"")
    assert run("list", "--lake", str(tmp_path / "empty")).stdout.startswith("no data set in")


MESSAGES = [
    (Reason.NOT_FOUND, "http://h.test:8000/a.png: status 404"),
    (Reason.NOT_FOUND, "https://h.test/b.png: status 410"),
    (Reason.REMOVED_IMAGE, "https://i.imgur.com/removed.png replaces a deleted image"),
    (Reason.CONNECTION_FAILED, "gone.test: its name cannot be resolved"),
    (Reason.TIMED_OUT, "http://slow.test/x: no complete answer in time"),
    (Reason.NOT_FOUND, "img/bad.png: no such file"),  # no host's
    (Reason.TOO_SMALL, "http://h.test/c.png"),  # no matter of fetching
]


def test_failures_are_counted_by_host_and_reason() -> None:
    rows = [Failure(Stage.IMAGES, "d", reason, message) for reason, message in MESSAGES]
    found = failures_by_host(tables(rows, 3))
    assert found == {
        ("h.test", "not-found"): 2,
        ("i.imgur.com", "removed-image"): 1,
        ("gone.test", "connection-failed"): 1,
        ("slow.test", "timed-out"): 1,
    }
    assert [line.split()[0] for line in host_lines(found)] == [
        "host",
        "h.test",
        "gone.test",
        "i.imgur.com",
        "slow.test",
    ]
    assert host_lines({}) == []
