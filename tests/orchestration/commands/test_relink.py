"""The command relink, from shards of a corpus to documents with both assignments, and from a version of a lake."""

import json
from collections.abc import Callable
from pathlib import Path

import lakes
import pyarrow.parquet as pq
import pytest
from builds import build_of
from forked import Outcome
from PIL import Image

from schemas.lake import Lake
from training.config import TrainConfig
from training.linking.relinked import caution_line
from training.towers.vectors import LinearSettings, SentenceSettings

QUICK = "features.images=colour-shape"
TEXTS = ("Cut the boards to length.", "A cat sleeps on the sofa.", "Bake the bread for an hour.")


def corpus(folder: Path) -> Path:
    """Write two shards of MMC4 with their pictures beside them."""
    folder.mkdir()
    for shard in range(2):
        lines = []
        for number in range(4):
            names = [f"{shard}-{number}-{image}.jpg" for image in range(2)]
            for image, name in enumerate(names):
                picture = Image.effect_mandelbrot((64, 48), (-2 - number / 9, -1 - shard / 5, 1 + image / 3, 1), 40)
                picture.convert("RGB").save(folder / name, "JPEG")
            shown = [
                {"image_name": name, "raw_url": f"https://h.example/{name}", "matched_text_index": image,
                 "matched_sim": 0.25}
                for image, name in enumerate(names)
            ]  # fmt: skip
            lines.append(json.dumps({"text_list": TEXTS, "image_info": shown, "url": f"https://h.example/{number}"}))
        (folder / f"docs_no_face_shard_{shard}_v3.jsonl").write_text("\n".join(lines))
    return folder


def saved_model(lake: Path, shards: Path, folder: Path) -> Path:
    """Save a model, with random weights, of what a build of the corpus has."""
    settings = [f"source.documents={shards}", f"source.images={shards}", QUICK]
    build_of("mmc4", lake, *settings)
    config = TrainConfig(recipe="test", dimensions=16, text=SentenceSettings(), image=LinearSettings(standardise=True))
    folder.mkdir()
    lakes.untrained(config, Lake.at(str(lake)), dataset="mmc4").save(folder)
    return folder


@pytest.mark.slow
def test_a_corpus_is_relinked_by_one_command(within: Callable[..., Outcome], tmp_path: Path) -> None:
    shards = corpus(tmp_path / "mmc4")
    model = saved_model(tmp_path / "other", shards, tmp_path / "model")
    where = ("--lake", tmp_path / "lake", "--model", model)
    source = ("--input", shards, "--format", "mmc4", "--set", f"source.images={shards}", "--set", QUICK)
    summary = within("relink", *where, *source, "--output", "out", "--json").json
    assert (summary["documents"], summary["failures"]) == (8, {})
    assert (summary["agreement"]["documents"], summary["agreement"]["given"]) == (8, 16)
    rows = pq.read_table(tmp_path / "out" / "relinked").to_pylist()
    for row in rows:
        assert [sentence["text"] for sentence in row["sentences"]] == list(TEXTS)
        assert [image["source"].rpartition("/")[0] for image in row["images"]] == ["https://h.example"] * 2
        assert [(link["sentence"], link["image"]) for link in row["given_links"]] == [(0, 0), (1, 1)]
        assert {link["image"] for link in row["predicted_links"]} <= {0, 1}
    assert len(rows) == 8
    same = sum((link["sentence"], link["image"]) in {(0, 0), (1, 1)} for row in rows for link in row["predicted_links"])
    assert summary["agreement"]["same"] == same

    assert summary["trained_on"].startswith("mmc4@")
    again = within("relink", *where, "--dataset", summary["dataset"], "--output", "out", "--json").json
    assert (again["shards_reused"], again["agreement"]) == (again["shards"], summary["agreement"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--dataset", "x", "--input", "y"], "either --input PATH with --format, or --dataset NAME"),
        ([], "either --input PATH with --format, or --dataset NAME"),
        (["--input", "y", "--format", "mmc4"], "expected --model and --format"),
        (["--input", "y", "--model", "m"], "expected --model and --format"),
        (["--dataset", "x", "--format", "mmc4"], "work only with --input"),
    ],
)
def test_mistakes_are_told(within: Callable[..., Outcome], arguments: list[str], told: str) -> None:
    result = within("relink", "--output", "out", "--lake", "lake", *arguments)
    assert result.status == 2 and told in result.err


def test_the_summary_says_what_probabilities_are_worth() -> None:
    assert "too high for documents of its training split" in caution_line("diy@01", "diy@02")
    told = caution_line("diy@01", "mmc4@02")
    assert "trained on diy@01" in told and "do not hold for mmc4@02" in told
