"""What a host keeps mapped is named by what it was made of, is whole, and is bounded."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.parts import sampled
from training.config import LoopConfig, TrainConfig
from training.data import mapped
from training.data.loading import load_training_data, open_split
from training.data.mapped import CACHE, LIMIT, forget_version
from training.loop.context import Context
from training.loop.trainer import train
from training.loop.validation import validate
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
    lake = make_lake(tmp_path / "lake")
    lakes.whole(load_training_data(lake, "synthetic", CONFIG.reading).training)
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
