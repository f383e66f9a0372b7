"""Any source gives its documents by the steps that it says it has; no failure of any step names what is taken down."""

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that
from candidates import candidate_of, uris_of

from pipelines.launch import run_pipeline
from pipelines.settings import HttpConfig, Runner
from pipelines.sources.datasets.diy import DiySource
from pipelines.sources.datasets.wikipedia import ImageclefSource
from pipelines.sources.records import MAX_ADDRESS, CandidateDocument, rejected, sentence
from pipelines.sources.source import Context, Outcomes, Source
from pipelines.sources.takedowns import NAMELESS, Takedowns, parse_takedowns
from pipelines.sources.transforms import ReadSource
from schemas.documents import Provenance
from schemas.failures import Failure, Reason
from schemas.lake import Folder

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


@dataclass(frozen=True, order=True)
class Item:
    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUp(Source):
    """A source of another package, with every step: items of two shards, one of an id, fetched, then completed."""

    inputs: ClassVar = ()
    names: tuple[str, ...] = ("a", "b")

    def shards(self) -> Sequence[str]:
        return self.names

    def read_shard(self, shard: str, context: Context) -> Iterator[Item | Failure]:
        yield Item("1", f"{shard} one")
        yield Item(f"{shard}2", f"{shard} two")
        yield rejected(f"{shard}3", Reason.MISSING_FIELD, "read")

    def select(self, key: str, items: Iterable[Item], context: Context) -> Iterator[Item | Failure]:
        first, *others = sorted(items)
        yield first
        yield from (rejected(key, Reason.DUPLICATE_RECORD, "select") for _ in others)

    def fetch(self, items: Sequence[Item], context: Context) -> Iterator[Any]:
        context.note((item.id, f"https://h.example/{item.id}") for item in items)
        for item in items:
            yield rejected(item.id, Reason.NOT_FOUND, "fetch") if item.id == "b2" else item

    def complete(self, item: Item, context: Context) -> Outcomes:
        yield candidate_of(
            id=item.id,
            dataset="made-up",
            sentences=(sentence(f"{item.text}, at least {context.min_images}"),),
            image_uris=(f"{item.id}.jpg", "data:image/png;base64," + "A" * MAX_ADDRESS),
            links=None,
            provenance=Provenance("made-up", item.id),
        )
        yield rejected(item.id, Reason.ANIMATED_IMAGE, "complete", image=1)


def outcomes(source: Source, tmp_path: Path, *entries: str) -> tuple[list[CandidateDocument], list[Failure]]:
    """Return what a source gives in Beam."""
    takedowns = parse_takedowns([entry.encode() for entry in entries], name="list")

    def keep(elements: list[Any], name: str) -> None:
        (tmp_path / name).write_bytes(pickle.dumps(elements))

    def assemble(root: beam.Pipeline) -> None:
        outcome = root | ReadSource(source=source, context=context_of(tmp_path, takedowns))
        assert_that(outcome.results, partial(keep, name="results"), label="results")
        assert_that(outcome.failures | beam.Flatten(), partial(keep, name="failures"), label="failures")

    run_pipeline(assemble, runner=Runner.LOCAL, workers=1)
    results, failures = (pickle.loads((tmp_path / name).read_bytes()) for name in ("results", "failures"))
    return sorted(results, key=repr), sorted(failures, key=repr)


def context_of(tmp_path: Path, takedowns: Takedowns) -> Context:
    raw, ledger = Folder(str(tmp_path / "raw")), Folder(str(tmp_path / "ledger"))
    return Context(http=HttpConfig(), raw=raw, ledger=ledger, takedowns=takedowns, min_images=3)


def ledger_of(tmp_path: Path) -> list[dict[str, Any]]:
    return [row for path in sorted((tmp_path / "ledger").iterdir()) for row in pq.read_table(path).to_pylist()]


def test_a_source_with_every_step(tmp_path: Path) -> None:
    documents, failures = outcomes(MadeUp(), tmp_path)
    assert [(each.id, each.sentences[0].text) for each in documents] == [
        ("1", "a one, at least 3"),
        ("a2", "a two, at least 3"),
    ]
    assert {(uris_of(d)[1][:31], len(uris_of(d)[1]) < 300) for d in documents} == {
        ("unusable:broken-record:expected", True)
    }
    assert sorted((each.record_id, each.message) for each in failures) == [
        ("1", "complete"), ("1", "select"), ("a2", "complete"), ("a3", "read"), ("b2", "fetch"), ("b3", "read"),
    ]  # fmt: skip
    asked = {(row["key"], row["captured"]) for row in ledger_of(tmp_path) if row["text"] is None}
    assert asked == {(key, f"https://h.example/{key}") for key in ("1", "a2", "b2")}
    read = {row["key"]: row["addresses"] for row in ledger_of(tmp_path) if row["text"] is not None}
    assert read.keys() == {"1", "a2"} and max(map(len, read["1"])) < 300


def test_failures_of_all_steps_name_nothing_that_is_taken_down(tmp_path: Path) -> None:
    _, failures = outcomes(MadeUp(), tmp_path, "id:1", "id:a2", "id:a3", "id:b2", "id:b3")
    assert {each.record_id for each in failures} == {NAMELESS}
    assert {row["key"] for row in ledger_of(tmp_path) if row["text"] is not None} == set()


def test_a_submission_that_cannot_be_read_is_not_named(tmp_path: Path) -> None:
    records = [
        {"id": "secret1", "subreddit": "DIY", "title": "t", "url": "https://imgur.com/a/x"},  # without a score
        {"id": "other", "subreddit": "DIY", "score": 1, "title": "t", "url": "https://imgur.com/a/y", "author": "z"},
    ]
    (tmp_path / "RS_x").write_text("\n".join(map(json.dumps, records)))
    _, failures = outcomes(DiySource(dump=(str(tmp_path / "RS_x"),)), tmp_path, "id:secret1")
    assert [(each.record_id, each.reason) for each in failures] == [
        ("other", Reason.LOW_SCORE),
        (NAMELESS, Reason.TAKEN_DOWN),
    ]


def test_an_article_that_cannot_be_read_is_not_named(tmp_path: Path) -> None:
    source = ImageclefSource(texts=str(FIXTURES / "imageclef"))
    _, before = outcomes(source, tmp_path)
    named = [each for each in before if each.record_id.startswith("text/en/")]
    assert named
    _, after = outcomes(source, tmp_path, *(f"id:{each.record_id.rpartition('/')[2]}" for each in named))
    assert not {each.record_id for each in named} & {each.record_id for each in after}
    assert sum(each.reason is Reason.TAKEN_DOWN for each in after) == len(named)


@pytest.mark.parametrize("kind", ["dump", "api"])
def test_what_reddit_says_of_itself(kind: str) -> None:
    source = DiySource(kind=kind, dump=("RS_1", "RS_2"), albums="page" if kind == "dump" else "api")  # type: ignore[arg-type]
    keys = ("REDDIT_CLIENT_ID", "REDDIT_CLIENT_SECRET", "IMGUR_CLIENT_ID")
    assert tuple(source.environment) == (() if kind == "dump" else keys)
    assert tuple(source.shards()) == (("RS_1", "RS_2") if kind == "dump" else ("RS_1", "RS_2", "top"))
