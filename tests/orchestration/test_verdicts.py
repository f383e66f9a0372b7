"""Each blocking check is fed a sound version, and one with the fault it is there to find."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from versions import write_version

from orchestration.config import CheckSettings
from orchestration.rules.verdicts import (
    Verdict,
    VersionOnDisk,
    better_than_nostruct,
    counts_in_bounds,
    duplicate_free,
    leak_free,
    manifest_verifies,
    norms_are_sane,
    within_failure_budget,
)
from schemas.failures import Stage
from schemas.features import FeatureColumn, Storage
from schemas.lake import Folder
from schemas.manifest import COPIES, verify
from schemas.messages import IntegrityError

Make = Callable[..., VersionOnDisk]


@pytest.fixture
def version(tmp_path: Path) -> Make:
    return partial(write_version, Folder(str(tmp_path / "version")))


def test_a_flipped_bit_a_missing_and_an_extra_file_are_found(version: Make) -> None:
    subject = version()
    path = subject.manifest.files[1].path
    data = bytearray(subject.folder.read(path))
    data[len(data) // 2] ^= 1
    subject.folder.write(path, bytes(data))
    assert manifest_verifies(subject).passed  # it looks at sizes: `datasets verify` and readers look at bytes
    assert [line for line in verify(subject.manifest, subject.folder) if path in line and "SHA-256" in line]
    subject.folder.write(path, bytes(data[:-1]))
    verdict = manifest_verifies(subject)
    assert not verdict.passed and path in verdict.text
    subject.folder.delete(path)
    subject.folder.write("images/train/more.parquet", b"")
    assert manifest_verifies(subject).numbers["problems"] == 2


@pytest.mark.parametrize(
    ("now", "before", "passes", "words"),
    [
        ({"train": 80, "test": 20}, {"train": 80, "test": 20}, True, "1.00 times"),
        ({"train": 50, "test": 1}, {"train": 80, "test": 20}, True, "0.51 times"),
        ({"train": 49, "test": 0}, {"train": 80, "test": 20}, False, "no document is left in test"),
        ({"train": 39, "test": 10}, {"train": 80, "test": 20}, False, "0.49 times"),
        ({"train": 301, "test": 20}, {"train": 80, "test": 20}, False, "3.21 times"),
        ({"train": 1, "test": 0}, None, True, "the first version"),
        ({"train": 0, "test": 0}, None, False, "0 documents"),
    ],
)
def test_counts_are_held_against_the_version_before(
    version: Make, now: dict[str, int], before: dict[str, int] | None, passes: bool, words: str
) -> None:
    verdict = counts_in_bounds(version(documents=now, before=before))
    assert verdict.passed is passes and words in verdict.text


@pytest.mark.parametrize(("failed", "passes"), [(0, True), (25, True), (26, False), (100, False)])
def test_a_stage_has_a_failure_budget(version: Make, failed: int, passes: bool) -> None:
    stages = {"images": {"in": 100, "out": 100 - failed, "rejected": 0, "failed": failed}}
    stages["sources"] = {"in": 0, "out": 0, "rejected": 0, "failed": 0}
    verdict = within_failure_budget(version(stages=stages), [Stage.SOURCES, Stage.IMAGES])
    assert (verdict.passed, verdict.numbers) == (passes, {"images_failed_share": failed / 100})


@pytest.mark.parametrize(
    ("left", "policy", "passes"), [(0, "drop-documents", True), (2, "keep-first", False), (2, "keep-all", True)]
)
def test_near_duplicates_are_left_only_where_the_policy_keeps_them(
    version: Make, left: int, policy: str, passes: bool
) -> None:
    verdict = duplicate_free(version(duplicates_left=left, policy=policy))
    assert verdict.passed is passes and verdict.numbers == {"pictures": 7, "left": left}


@pytest.mark.parametrize("check", [duplicate_free, leak_free])
def test_what_no_build_counted_is_not_passed(version: Make, check: Callable[[VersionOnDisk], Verdict]) -> None:
    """So it is with a subset, and with what forgetting left."""
    subject = version()
    assert check(subject).passed
    verdict = check(replace(subject, manifest=replace(subject.manifest, notes={COPIES: "0123"})))
    assert not verdict.passed and "no build counted" in verdict.text


@pytest.mark.parametrize(
    ("kind", "passes"), [("exact-image", False), ("near-image", False), ("document-text", False), ("sentence", True)]
)
def test_pictures_and_whole_texts_may_not_be_in_two_splits(version: Make, kind: str, passes: bool) -> None:
    leak = {"kind": kind, "split": "test", "other_split": "train", "keys": 2, "documents": 3}
    verdict = leak_free(version(leaks=[leak]))
    assert (verdict.passed, verdict.numbers[kind]) == (passes, 2)
    assert not leak_free(version(leaks=[leak], bounds=CheckSettings(refused_leaks=(kind,)))).passed


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        (np.diag([1, 1, 1, np.inf]), "1 of 4 vectors"),
        (np.diag([1, 1, np.nan, np.nan]), "2 of 4 vectors"),
        (np.diag([1, 1, 1, 0]), "4 vectors of length 0 to 1, expected"),
        (np.diag([1, 1, 1, 60000]), "4 vectors of length 1 to 60000, expected"),
        (np.ones((4, 4)), "all 4 vectors are the same"),
    ],
)
def test_odd_vectors_are_found(version: Make, vectors: np.ndarray, words: str) -> None:
    verdict = norms_are_sane(version(vectors=vectors))
    assert not verdict.passed and words in verdict.text


@pytest.mark.parametrize("storage", list(Storage))
def test_vectors_of_every_storage_are_judged(version: Make, storage: Storage) -> None:
    """int8 ended in an error, and float32 above 65,504 counted as not finite: such data sets never trained."""
    bounds = CheckSettings(most_norm=1e6)
    large = 70_000.0 if storage is not Storage.FLOAT16 else 60_000.0
    assert norms_are_sane(version(vectors=np.diag([1, 1, 1, large]), storage=storage, bounds=bounds)).passed
    odd = norms_are_sane(version(vectors=np.diag([1, 1, 1, 0]), storage=storage))
    assert not odd.passed and "4 vectors of length 0 to 1, expected" in odd.text


def test_an_announced_feature_column_must_be_there(version: Make) -> None:
    subject = version()
    announced, none = (
        replace(subject, manifest=replace(subject.manifest, features=features))
        for features in ({"images": (FeatureColumn(name="resnet50", dimensions=4),)}, {})
    )
    with pytest.raises(IntegrityError, match=r"features\.resnet50 is not there"):
        norms_are_sane(announced)
    assert not norms_are_sane(none).passed


@pytest.mark.parametrize(
    ("low", "mean", "high", "passes"), [(0.1, 5.0, 9.0, True), (-0.1, 5.0, 10.0, False), (-9.0, -5.0, -1.0, False)]
)
def test_a_model_has_to_be_shown_to_be_better_than_nostruct(low: float, mean: float, high: float, passes: bool) -> None:
    verdict = better_than_nostruct({"mean": mean, "low": low, "high": high})
    told = f"AUC minus NoStruct's: {mean:+.2f} ({low:+.2f} to {high:+.2f}, paired)"
    assert (verdict.passed, verdict.text) == (passes, told)
    assert not better_than_nostruct(None).passed
