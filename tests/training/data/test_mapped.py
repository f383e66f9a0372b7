"""What a host keeps mapped is whole and bounded; batches, views and samples of an index, and what is drawn for them."""

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import Role, Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.parts import sampled
from training.config import LoopConfig, TrainConfig
from training.data import mapped
from training.data import split as batching
from training.data.documents import ALL_SENTENCES, DocumentSet, TextView, viewed
from training.data.lake import Columns, read_split
from training.data.loading import load_training_data, open_split
from training.data.mapped import CACHE, LIMIT, forget_version
from training.data.ragged import Ragged, sample_rows, seed_of, stream
from training.data.split import SplitIndex, batch_count, read_index, training_batches, validation_bounds
from training.loop.context import Context
from training.loop.epoch import validate
from training.loop.trainer import train
from training.model import LinkModel
from training.towers.vectors import LinearSettings, SentenceSettings

CONFIG = TrainConfig(
    dimensions=16,
    text=SentenceSettings(),
    image=LinearSettings(),
    training=LoopConfig(epochs=1, negative_documents=4),
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "mapped"


def make_lake(folder: Path, *, validation: int = 12, is_turned: bool = False) -> Lake:
    """Return a lake; a turned one has the same documents with the vectors' numbers in another order."""
    made = lakes.splits(train=30, val=validation)
    if is_turned:
        made = {split: replace(each, **turned(each)) for split, each in made.items()}
    return lakes.write_lake(folder, made, shards=2)


def turned(made: Any) -> dict[str, Any]:
    return {
        name: {key: value[..., ::-1].copy() for key, value in getattr(made, name).items()}
        for name in ("sentence_vectors", "image_vectors")
    }


def trained(lake: Lake, run: Path) -> tuple[LinkModel, float]:
    """Return the model of one epoch, and its validation loss."""
    result = train(CONFIG, load_training_data(lake, "synthetic", CONFIG.reading), Context(), run_directory=run)
    return LinkModel.load(result.model), result.history[-1]["validation_loss"]


def loss(model: LinkModel, lake: Lake, documents: int = 0) -> float | None:
    manifest, folder = read_manifest(lake, "synthetic")
    card = model.card
    split = open_split(sampled(manifest, documents), folder, card.data, card.config.reading, Split.VAL)
    return validate(model, split, Context(), epoch=card.epoch).loss


def test_a_host_keeps_the_data_sets_of_one_model_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """Files were named by the model's own data set: another one's numbers were taken for its own."""
    own, other = make_lake(tmp_path / "own"), make_lake(tmp_path / "other", is_turned=True)
    larger = make_lake(tmp_path / "larger", validation=20)
    model, validation = trained(own, tmp_path / "run")
    shared = [loss(model, lake) for lake in (other, own, larger)]
    for number, lake in enumerate((other, own, larger)):
        monkeypatch.setenv(CACHE, str(tmp_path / f"empty-{number}"))
        assert loss(model, lake) == shared[number]
    assert len(set(shared)) == 3 and shared[1] == pytest.approx(validation)
    monkeypatch.setenv(CACHE, str(tmp_path / "begun-by-another"))
    loss(model, other)
    assert trained(own, tmp_path / "again")[1] == validation


def test_a_sampled_split_and_the_whole_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    lake = make_lake(tmp_path / "lake")
    model, validation = trained(lake, tmp_path / "run")
    sample = loss(model, lake, 8)
    monkeypatch.setenv(CACHE, str(tmp_path / "begun-by-a-sample"))
    assert loss(model, lake, 8) == sample != validation
    data = load_training_data(lake, "synthetic", CONFIG.reading)
    assert data.validation is not None and len(data.validation.index) == 12
    assert trained(lake, tmp_path / "again")[1] == validation


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped"])
@pytest.mark.parametrize("which", ["index", "shard"])
def test_a_damaged_file_is_made_again(tmp_path: Path, cache: Path, damage: str, which: str) -> None:
    lake = make_lake(tmp_path / "lake")
    training = load_training_data(lake, "synthetic", CONFIG.reading).training
    expected = lakes.whole(training)
    sizes = {path: path.stat().st_size for path in cache.glob("*.arrow")}
    indexes, shards = sorted(sizes, key=sizes.__getitem__)[:2], sorted(sizes, key=sizes.__getitem__)[2:]
    assert len(indexes) == 2 and len(shards) == 2
    for path in indexes if which == "index" else shards:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x40
        found = {"empty": b"", "cut": data[: len(data) // 2], "flipped": data}[damage]
        path.unlink()
        path.write_bytes(found)
    mapped.check.cache_clear()  # as in another process
    again = load_training_data(lake, "synthetic", CONFIG.reading).training
    found = lakes.whole(again)
    assert found.ids == expected.ids and found.texts == expected.texts
    for name in ("image_bank", "sentence_vectors", "image_rows"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    assert np.array_equal(again.index.image_sets, training.index.image_sets)
    assert {path: path.stat().st_size for path in cache.glob("*.arrow")} == sizes


def test_old_files_go_and_beyond_the_limit_those_that_were_used_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    lakes.whole(load_training_data(make_lake(tmp_path / "lake"), "synthetic", CONFIG.reading).training)
    kept = {path.name for path in cache.glob("*.arrow")}
    now = time.time()
    for name, age_s, size in (("old", mapped.KEPT_S + 60, 10), ("first", 7200, 600_000), ("later", 3600, 600_000)):
        path = cache / f"{name}.arrow"
        path.write_bytes(b"0" * size)
        os.utime(path, (now - age_s, now - age_s))
    monkeypatch.setenv(LIMIT, "0.001")
    monkeypatch.setattr(mapped, "LOOKS", 1)
    other = make_lake(tmp_path / "other", is_turned=True)
    lakes.whole(load_training_data(other, "synthetic", CONFIG.reading).training)
    found = {path.name for path in cache.glob("*.arrow")}
    assert "later.arrow" in found and kept < found
    assert not {"old.arrow", "first.arrow"} & found


def test_a_cache_smaller_than_a_shard_trains_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    lake = make_lake(tmp_path / "lake")
    _, validation = trained(lake, tmp_path / "run")
    monkeypatch.setenv(CACHE, str(tmp_path / "small"))
    monkeypatch.setenv(LIMIT, "0.000000001")
    monkeypatch.setattr(mapped, "LOOKS", 1)
    assert trained(lake, tmp_path / "again")[1] == validation


def test_what_a_version_left_on_this_host_is_removed(tmp_path: Path, cache: Path) -> None:
    forgotten, other = make_lake(tmp_path / "lake"), make_lake(tmp_path / "other", is_turned=True)
    lakes.whole(load_training_data(other, "synthetic", CONFIG.reading).training)
    kept = {path.name for path in cache.glob("*.arrow")}
    data = load_training_data(forgotten, "synthetic", CONFIG.reading)
    lakes.whole(data.training)
    assert len({path.name for path in cache.glob("*.arrow")} - kept) == 4  # two indexes, two shards
    assert forget_version(read_manifest(forgotten, "synthetic")[0]) == 4
    assert {path.name for path in cache.glob("*.arrow")} == kept
    assert len(lakes.whole(data.training)) == 30  # a run that is under way keeps what it has mapped


def index_of(image_sets: list[int], empty: frozenset[int] = frozenset()) -> SplitIndex:
    count = len(image_sets)
    sizes = np.array([0 if position in empty else 2 for position in range(count)], dtype=np.int64)
    return SplitIndex(
        shards=Ragged.of([count]),
        sentences=Ragged.of(sizes),
        images=Ragged.of(np.full(count, 3)),
        image_sets=np.array(image_sets, np.uint64),
        usable=np.flatnonzero(sizes),
    )


@given(st.integers(2, 60), st.integers(1, 12), st.integers(0, 5), st.integers(0, 9))
def test_batches_are_full_and_no_document_comes_twice(count: int, negatives: int, seed: int, epoch: int) -> None:
    index = index_of(list(range(count)))
    batches = list(training_batches(index, negative_documents=negatives, seed=seed, epoch=epoch))
    assert len(batches) == batch_count(index, negative_documents=negatives)
    seen = [position for batch in batches for position in batch]
    assert max(Counter(seen).values()) == 1
    if count <= negatives + 1:
        assert [len(batch) for batch in batches] == [count]
    else:
        assert {len(batch) for batch in batches} == {negatives + 1}
        assert len(batches) == count // (negatives + 1)


@given(st.lists(st.integers(0, 6), min_size=5, max_size=60), st.integers(1, 4))
def test_versions_of_an_image_set_meet_only_where_they_must(image_sets: list[int], negatives: int) -> None:
    batches = list(training_batches(index_of(image_sets), negative_documents=negatives, seed=0, epoch=0))
    seen = [position for batch in batches for position in batch]
    assert max(Counter(seen).values()) == 1
    assert len(batches) == max(1, len(image_sets) // (negatives + 1))
    mixed = [len({image_sets[p] for p in batch}) < len(batch) for batch in batches]
    assert mixed == sorted(mixed)  # those that could not be kept apart come last


def test_order_differs_by_epoch_and_seed_alone() -> None:
    index = index_of(list(range(40)))
    orders = [
        np.concatenate([*training_batches(index, negative_documents=3, seed=seed, epoch=epoch)]).tolist()
        for seed, epoch in [(0, 1), (0, 1), (0, 2), (1, 1)]
    ]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2] != orders[3] != orders[0]


def test_documents_without_sentences_are_in_no_batch() -> None:
    index = index_of(list(range(9)), empty=frozenset({0, 4}))
    batches = training_batches(index, negative_documents=6, seed=0, epoch=0)
    assert sorted(np.concatenate([*batches]).tolist()) == [1, 2, 3, 5, 6, 7, 8]


def test_validation_batches_hold_every_document_in_order() -> None:
    for count in range(1, 20):
        bounds = validation_bounds(count, negative_documents=3)
        assert (bounds[0], bounds[-1]) == (0, count)
        assert min(np.diff(bounds)) >= min(2, count)
        assert max(np.diff(bounds)) <= 5


@pytest.mark.parametrize(("count", "window"), [(200, 50), (201, 50), (1003, 64), (1003, 7), (64, 64)])
def test_a_large_split_is_shuffled_window_by_window(monkeypatch: pytest.MonkeyPatch, count: int, window: int) -> None:
    monkeypatch.setattr(batching, "WINDOW", window)
    monkeypatch.setattr(batching, "PASSED_OVER", 5)
    sizes = [*[10] * (count // 10), count % 10]
    index = replace(index_of(list(range(count)), empty=frozenset({3})), shards=Ragged.of(sizes))
    epochs = [[*training_batches(index, negative_documents=4, seed=3, epoch=epoch)] for epoch in (1, 1, 2)]
    for batches in epochs:
        assert {len(batch) for batch in batches} == {5} and len(batches) == batch_count(index, negative_documents=4)
        seen = np.concatenate(batches).tolist()
        assert max(Counter(seen).values()) == 1 and 3 not in seen
        shards = [{position // 10 for position in batch} for batch in batches]
        if count > window:  # a window's documents, and those that were left of the one before
            assert max(map(len, shards)) <= 2 * (window // 10 + 2)
    first, again, other = (np.concatenate(batches) for batches in epochs)
    assert first.tolist() == again.tolist() != other.tolist()
    assert 0.25 < (first[: len(first) // 2] < count / 2).mean() < 0.75  # shards of all of the split come early


def test_same_image_set() -> None:
    same = index_of([1, 2, 1]).same_image_set(np.array([0, 1, 2]))
    assert same.tolist() == [[True, False, True], [False, True, False], [True, False, True]]


def test_a_key_always_gives_the_same_numbers() -> None:
    assert np.array_equal(stream("a", 1, 2).random(5), stream("a", 1, 2).random(5))
    assert seed_of("a", 1) == seed_of("a", 1)


def test_different_keys_give_different_numbers() -> None:
    firsts = {float(stream(*key).random()) for key in [("a", 1, 2), ("a", 12), ("a1", 2), ("a", 2, 1), ("a", "1", 2)]}
    assert len(firsts) == 5
    assert 0 <= seed_of("b") < 2**63


def test_numbers_are_pinned() -> None:
    """A change here changes every trained model: bump versions and say so."""
    assert stream("batches", 0, 1).permutation(8).tolist() == [0, 5, 4, 7, 6, 2, 3, 1]


def documents() -> DocumentSet:
    """A document with all but a lead, one with two captions, one without text."""
    roles = ("headline", "body", "caption", "body", "caption", "caption")
    return DocumentSet(
        ids=("a", "b", "c"),
        texts=("h", "b1", "c", "b2", "c1", "c2"),
        roles=roles,
        languages=("de", "fr", "de"),
        sentences=Ragged.of([4, 2, 0]),
        sentence_numbers=np.array([0, 1, 2, 3, 0, 1]),
        sentence_vectors=np.arange(6, dtype=np.float16)[:, None],
        image_rows=np.arange(3),
        images=Ragged.of([1, 1, 1]),
        image_hashes=("x", "y", "z"),
        image_bank=np.zeros((3, 1), np.float16),
        links=(np.array([[2, 0], [3, 0]]), None, np.zeros((0, 2), np.int64)),
    )


def test_sentences_of_some_roles_keep_their_vectors_and_links() -> None:
    found = viewed(documents(), TextView(roles=("caption",)))
    assert found.texts == ("c", "c1", "c2") and set(found.roles) == {"caption"}
    assert found.sentences.offsets.tolist() == [0, 1, 3, 3]
    assert found.sentence_vectors is not None and found.sentence_vectors[:, 0].tolist() == [2, 4, 5]
    assert found.links[0].tolist() == [[0, 0]] and found.links[1] is None and found.links[2].shape == (0, 2)


def test_fused_sources_are_one_row_a_document() -> None:
    found = viewed(documents(), TextView(roles=("headline", "lead", "caption", "body"), is_fused=True))
    assert found.sources == (("h", "", "c", "b1 b2"), ("", "", "c1 c2", ""))
    assert found.sentences.offsets.tolist() == [0, 1, 2, 2]
    assert found.texts == ("h", "c1 c2")
    assert found.links is not None and found.links[0] is not None and found.links[0].tolist() == [[0, 0]]
    given = documents()
    assert viewed(given, ALL_SENTENCES) is given


def test_the_index_counts_what_the_reader_gives(tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TRAIN, 3, lakes.World(sentences=(4, 4)))
    made = lakes.with_roles(made, (Role.HEADLINE, Role.BODY, Role.CAPTION, Role.BODY))
    documents = tuple(
        replace(each, sentences=each.sentences[: 4 - number], links=(), language=("de", "fr", "und")[number])
        for number, each in enumerate(made.documents)
    )
    vectors = {each.id: made.sentence_vectors[each.id][: len(each.sentences)] for each in documents}
    made = replace(made, documents=documents, sentence_vectors=vectors)
    manifest, folder = read_manifest(lakes.write_lake(tmp_path, {Split.TRAIN: made}, shards=1), "synthetic")
    for view in (ALL_SENTENCES, TextView(roles=("body",)), TextView(roles=("caption", "body"), is_fused=True)):
        index = read_index(manifest, folder, Split.TRAIN, view=view)
        found = read_split(manifest, folder, Split.TRAIN, Columns(images="auto"), view=view)
        assert index.sentences.counts.tolist() == found.sentences.counts.tolist()
        assert found.languages == ("de", "fr", "und")


@given(st.lists(st.tuples(st.integers(1, 15), st.integers(1, 15)), min_size=1, max_size=5), st.integers(1, 9))
def test_samples_are_rows_of_their_own_document(sizes: list[tuple[int, int]], most: int) -> None:
    n, m = ([size[i] for size in sizes] for i in (0, 1))
    made = DocumentSet(
        ids=tuple(map(str, range(len(sizes)))),
        texts=("",) * sum(n),
        sentences=Ragged.of(n),
        sentence_numbers=Ragged.of(n).numbers,
        sentence_vectors=None,
        image_rows=np.arange(sum(m)),
        images=Ragged.of(m),
        image_hashes=(),
        image_bank=np.zeros((0, 0), np.float16),
    )
    rows = np.arange(len(sizes))[::-1].copy()
    found = sample_rows(made, rows, max_rows=most, seed=0, epoch=1, step=2)
    for place, row in enumerate(rows):
        for sets, chosen, kept in (
            (made.sentences, found.sentence_rows, found.sentences),
            (made.images, found.image_rows, found.images),
        ):
            own, rows_of = chosen[kept.rows(place)], sets.rows(int(row))
            size = rows_of.stop - rows_of.start
            assert len(set(own)) == len(own) == min(most, size)
            assert ((own >= rows_of.start) & (own < rows_of.stop)).all()
    alone = sample_rows(made, rows[:1], max_rows=most, seed=0, epoch=1, step=2)
    assert alone.sentence_rows.tolist() == found.sentence_rows[: found.sentences.offsets[1]].tolist()
