"""Whatever the settings: a lake that was used before gives what a fresh one gives, and two workers what one gives."""

import random
from pathlib import Path

import pytest
from pairs.world import Inputs, World, forget_no_failure, serving

from schemas.lake import Lake
from schemas.messages import MultilinkError

ROUNDS = 20
CHOICES = {
    "dedupe.policy": ("keep-all", "keep-first", "drop-documents"),
    "dedupe.fingerprint": ("phash", "phash-256"),
    "dedupe.radius": ("0", "3", "8"),
    "documents.is_judged_after_dedupe": ("true", "false"),
    "documents.min_images": ("1", "2"),
    "documents.keep_partial": ("true", "false"),
    "quality.min_sharpness": ("0", "2.5"),
    "quality.max_aspect": ("0", "1.4"),
    "features.images": ("", "colour-shape"),
    "features.storage": ("float16", "float32", "int8"),
    "splits.on_leak": ("report", "drop"),
    "splits.leak_kinds": ("images-exact,images-near,texts", "texts", "images-near"),
    "splits.val": ("0.0", "0.3"),
    "splits.seed": ("0", "7"),
    "shards.documents": ("1", "2", "256"),
    "images.min_side_px": ("16", "30"),
}
LISTS = ((), ("id:A",), ("id:B", "id:late"))
IDS = ("A", "B", "book#3", "late", "E", "F", "G")


def result(world: World, lake: Lake, workers: int) -> str:
    """Return the manifest that a build gives, or why it refuses."""
    try:
        return world.build(lake, workers=workers).manifest.to_json()
    except MultilinkError as refusal:
        return f"{type(refusal).__name__}: {str(refusal).replace(lake.root.uri, '')}"


@pytest.mark.trial
@pytest.mark.parametrize("seed", range(3))
def test_random_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    forget_no_failure(monkeypatch)
    with serving() as host:
        world = World(tmp_path, host, monkeypatch)
        for number in range(ROUNDS):
            chosen = frozenset(f"{key}={draw.choice(values)}" for key, values in CHOICES.items())
            world.inputs = Inputs(ids=IDS, settings=chosen, listed=draw.choice(LISTS))
            fresh = Lake.at(str(tmp_path / f"fresh-{number}"))
            assert result(world, world.lake, draw.choice((1, 2))) == result(world, fresh, 1), sorted(chosen)
