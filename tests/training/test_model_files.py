"""A model's folder whose files were changed, lost or made by someone else is never used, and is refused in one line."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from schemas.errors import IntegrityError
from training.config import TrainConfig
from training.data.loading import DatasetIdentity
from training.model import SUMS, LinkModel, ModelCard, check_files, folder_digest, seal
from training.towers.vectors import LinearSettings, SentenceSettings

Damage = Callable[[Path], object]
CONFIG = TrainConfig(dimensions=8, text=SentenceSettings(), image=LinearSettings(standardise=True))
DATA = DatasetIdentity(
    dataset="d", version="v", manifest_digest="0", image_features="i", sentence_features="t", image_dimensions=4,
    sentence_dimensions=3,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    LinkModel(ModelCard(config=CONFIG, data=DATA), None).save(tmp_path / "model")
    return tmp_path / "model"


def _flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _put_nan(path: Path) -> None:
    weights = torch.load(path, weights_only=True)
    next(iter(weights.values())).view(-1)[0] = float("nan")
    torch.save(weights, path)


def _change_card(path: Path) -> None:
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"epoch": 7}))


CHANGES: dict[str, Damage] = {
    "a flipped byte": lambda folder: _flip_a_byte(folder / "weights.pt"),
    "NaN in a tensor": lambda folder: _put_nan(folder / "weights.pt"),
    "another epoch": lambda folder: _change_card(folder / "model.json"),
    "no weights": lambda folder: (folder / "weights.pt").unlink(),
    "half the weights": lambda folder: (folder / "weights.pt").write_bytes(b"PK\3\4"),
    "one file more": lambda folder: (folder / "vocabulary.txt").write_text("a\n"),
    "no digests": lambda folder: (folder / SUMS).unlink(),
    "digests that are none": lambda folder: (folder / SUMS).write_bytes(b"\xff\n\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_that_was_changed_is_refused(folder: Path, change: str) -> None:
    LinkModel.load(folder)
    CHANGES[change](folder)
    with pytest.raises(IntegrityError) as caught:
        LinkModel.load(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_what_changed_is_named(folder: Path) -> None:
    _flip_a_byte(folder / "weights.pt")
    with pytest.raises(IntegrityError, match=r"expected the files that were saved, found others: weights\.pt$"):
        check_files(folder)


UNREADABLE: dict[str, Damage] = {
    "NaN": lambda folder: _put_nan(folder / "weights.pt"),
    "a pickle": lambda folder: (folder / "weights.pt").write_bytes(b"cos\nsystem\n(S'true'\ntR."),
    "nothing": lambda folder: (folder / "weights.pt").write_bytes(b""),
    "a list": lambda folder: torch.save([1, 2], folder / "weights.pt"),
    "other tensors": lambda folder: torch.save({"a": torch.ones(1)}, folder / "weights.pt"),
    "no weights": lambda folder: (folder / "weights.pt").unlink(),
    "no JSON": lambda folder: (folder / "model.json").write_text("{"),
    "a JSON list": lambda folder: (folder / "model.json").write_text("[1]"),
    "no text": lambda folder: (folder / "model.json").write_bytes(b"\xff\xfe"),
    "another format": lambda folder: (folder / "model.json").write_text('{"format": 99}'),
    "deep JSON": lambda folder: (folder / "model.json").write_text("[" * 100_000),
    "half a card": lambda folder: (folder / "model.json").write_text('{"format": 1}'),
}


@pytest.mark.parametrize("damage", UNREADABLE)
def test_a_sealed_folder_that_is_no_model_is_refused_in_one_line(folder: Path, damage: str) -> None:
    UNREADABLE[damage](folder)
    seal(folder)
    with pytest.raises(IntegrityError) as caught:
        LinkModel.load(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_a_recorded_digest_must_be_met(folder: Path) -> None:
    digest = folder_digest(folder)
    check_files(folder, digest)
    _change_card(folder / "model.json")
    seal(folder)
    check_files(folder)
    with pytest.raises(IntegrityError, match=f"expected the model that was recorded, digest {digest}"):
        check_files(folder, digest)


def test_the_digests_are_those_of_sha256sum(folder: Path) -> None:
    subprocess.run(["sha256sum", "-c", "--quiet", SUMS], cwd=folder, check=True)
