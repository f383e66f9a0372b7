"""Splits and shards are functions of the id: stable, in proportion, never empty where they need not be."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pipelines.settings import ShardsConfig, SplitsConfig
from pipelines.splits.assign import final_split, merge_surveys, shard_count, shard_of, split_of, survey_one
from schemas.documents import Split

CONFIG = SplitsConfig()


def assign(ids: list[str], config: SplitsConfig = CONFIG) -> dict[str, Split]:
    moves = merge_surveys([survey_one(i, None, config) for i in ids]).moves(config)
    return {i: final_split(i, None, config, moves) for i in ids}


def test_shares_are_kept() -> None:
    counts = Counter(assign([f"doc{i}" for i in range(20_000)]).values())
    assert abs(counts[Split.VAL] / 20_000 - 0.1) < 0.01
    assert abs(counts[Split.TEST] / 20_000 - 0.1) < 0.01


def test_later_documents_move_none_that_were_there() -> None:
    ids = [f"doc{i}" for i in range(500)]
    before, after = assign(ids), assign([*ids, *(f"new{i}" for i in range(500))])
    assert all(after[i] == split for i, split in before.items())


@given(st.lists(st.text(min_size=1, max_size=8), min_size=3, max_size=40, unique=True), st.integers(0, 9))
def test_no_split_is_empty_and_order_does_not_matter(ids: list[str], rotation: int) -> None:
    assigned = assign(ids)
    assert set(assigned.values()) == set(Split)
    at = rotation % len(ids)
    assert assign(ids[at:] + ids[:at]) == assigned


def test_a_split_the_source_gives_is_kept_and_nothing_is_moved() -> None:
    surveys = [survey_one(f"d{i}", Split.TRAIN, CONFIG) for i in range(5)]
    assert merge_surveys(surveys).moves(CONFIG) == {}
    assert final_split("d0", Split.TEST, CONFIG, {}) is Split.TEST


def test_two_documents_fill_two_splits_with_training_first() -> None:
    assert Split.TRAIN in assign(["a", "b"]).values()
    assert len(set(assign(["a", "b"]).values())) == 2
    assert assign(["a"]) == {"a": Split.TRAIN} or split_of("a", CONFIG) is not Split.TRAIN


@given(st.text(), st.integers(1, 64))
def test_a_shard_is_in_range_and_stable(document_id: str, count: int) -> None:
    assert 0 <= shard_of(document_id, count=count) < count
    assert shard_of(document_id, count=count) == shard_of(document_id, count=count)


def test_shards_follow_the_number_of_documents() -> None:
    config = ShardsConfig(documents=128)
    assert [shard_count(n, config) for n in (0, 1, 128, 129, 1280)] == [1, 1, 1, 2, 10]
    assert shard_count(100_000_000, config) == shard_count(128 * 16_384, config) == 16_384
