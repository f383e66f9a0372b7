"""The main job, as a newcomer runs it: once, and once more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pyarrow.parquet as pq
import pytest

from orchestration.demo.demo import _score_lines
from schemas.evaluation import Score
from training.evaluation.evaluate import EvaluationReport

Run = Callable[..., Any]


@pytest.mark.trial  # over three minutes of a processor; `test_cli.py` does its steps with a few documents
def test_the_demo_promotes_a_model_that_beats_random_and_reuses_what_it_made(multilink: Run, tmp_path: Path) -> None:
    first = multilink("demo", "--workspace", "demo", "--json")
    assert first.status == 0, first.err
    values = first.json
    own, nostruct = values["scores"]["closed form"], values["scores"]["NoStruct"]
    assert own["auc"]["low"] > own["random"]["auc"]["high"]
    assert own["auc"]["mean"] >= nostruct["auc"]["mean"]
    assert own["auc"]["mean"] >= values["scores"]["AP"]["auc"]["mean"] > values["scores"]["AP"]["random"]["auc"]["high"]
    assert own["baselines"]["class-names"]["auc"]["mean"] > own["random"]["auc"]["high"]
    table = [line.split()[0] for line in first.out.splitlines() if line.startswith(("closed form", "AP ", "NoStruct "))]
    assert table == ["closed", "AP", "NoStruct"]
    assert values["promotion"]["is_promoted"]
    for step in range(1, 6):
        assert f"{step}/5" in first.err
    report = Path(values["report"]).read_text(encoding="utf-8")
    assert "NoStruct" in report
    assert "data:image/jpeg;base64" in report
    links = pq.read_table(tmp_path / "demo" / "linked" / "links.parquet")
    assert links.num_rows > 0
    assert values["linked_version"]["documents"] > 50  # what the pages show, and what they search
    assert values["index"]["images"] > 100
    assert Path(values["links"]).is_file()

    client = mlflow.MlflowClient(values["tracking_uri"], registry_uri=values["tracking_uri"])
    name = values["models"]["closed form"]["model"]
    champion = client.get_model_version_by_alias(name, "champion")
    assert str(champion.version) == values["models"]["closed form"]["version"]
    run = client.get_run(champion.run_id)
    assert run.data.params["objective.name"] == "closed-form"
    assert run.inputs.dataset_inputs[0].dataset.digest == values["build"]["version"]
    assert (
        len(client.get_metric_history(champion.run_id, "validation_auc")) == values["models"]["closed form"]["epochs"]
    )

    second = multilink("demo", "--workspace", "demo", "--json")
    assert second.status == 0, second.err
    assert second.err.count("reused: ") == 5  # the data set, three models, the links of the version
    assert second.json["index"]["reused"]
    assert second.json["build"]["version"] == values["build"]["version"]
    assert second.json["scores"] == values["scores"]


def test_ap_stands_below_the_closed_form(tmp_path: Path) -> None:
    rows = [
        Score(name, value, value - 2, value + 2, 9, measure=measure)
        for measure, value in (("links", 80.0), ("class-names", 70.0), ("random", 50.0))
        for name in ("auc", "precision_at_1", "precision_at_5")
    ]
    about = {"model": "m", "model_version": "1", "dataset": "diy", "dataset_version": "v", "split": "test"}
    EvaluationReport(**about, rows=tuple(rows)).write(tmp_path)  # type: ignore[arg-type]
    beside = {row.metric: {"mean": 60.0, "low": 55.5, "high": 64.0} for row in rows}
    lines = _score_lines(tmp_path, beside)[1:]
    assert [line.split("  ")[0] for line in lines] == ["Model", "closed form", "AP", "class names", "random"]
    assert "60.0 (55.5–64.0)" in lines[2]


@pytest.mark.trial  # a minute of a processor
def test_the_newsroom_finds_pictures_better_than_words_do(multilink: Run, tmp_path: Path) -> None:
    done = multilink("demo", "--news", "--workspace", "demo", "--json")
    assert done.status == 0, done.err
    found, build = done.json["search"], done.json["build"]
    assert build["stages"]["images"]["failed"] == 0  # every picture came from the recorded web
    scores = {key.partition(" role=all, ")[0]: value for key, value in found["scores"].items() if " role=all, " in key}
    others = ("bm25", "nearest sentence", "fusion")
    assert scores["search reciprocal_rank"] > max(scores[f"{other} reciprocal_rank"] for other in others)
    assert done.json["promotion"]["is_promoted"]
    name = next(key for key in found["scores"] if key.startswith("search recall_at_10 role=all, "))
    assert "5/5 evaluate-search" in done.err and "search " in done.out
    client = mlflow.MlflowClient(done.json["tracking_uri"], registry_uri=done.json["tracking_uri"])
    metrics = client.get_run(done.json["search"]["run_id"]).data.metrics
    assert metrics["test_search_recall_at_10_role_all"] == pytest.approx(found["scores"][name])
    assert (tmp_path / "demo" / "lake" / "indexes" / "news").is_dir()
