"""The main job, as a newcomer runs it: once, and once more."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
import pyarrow.parquet as pq
import pytest

from orchestration import steps
from orchestration.demo import demo
from orchestration.demo.demo import _score_lines
from orchestration.demo.processes import Processes
from schemas.messages import BuildError, Say
from training.evaluation.evaluate import EvaluationReport
from training.metrics.intervals import Score

Run = Callable[..., Any]


@pytest.mark.trial  # over three minutes of a processor; `test_cli.py` does its steps with a few documents
def test_the_demo_promotes_a_model_that_beats_random_and_reuses_what_it_made(multilink: Run, tmp_path: Path) -> None:
    first = multilink("demo", "--workspace", "demo", "--json").check()
    values = first.json
    own, nostruct = values["scores"]["closed form"], values["scores"]["NoStruct"]
    assert own["auc"]["low"] > own["random"]["auc"]["high"]
    assert own["auc"]["mean"] >= nostruct["auc"]["mean"]
    assert own["auc"]["mean"] >= values["scores"]["AP"]["auc"]["mean"] > values["scores"]["AP"]["random"]["auc"]["high"]
    assert own["baselines"]["class-names"]["auc"]["mean"] > own["random"]["auc"]["high"]
    table = [line.split()[0] for line in first.out.splitlines() if line.startswith(("closed form", "AP ", "NoStruct "))]
    assert table == ["closed", "AP", "NoStruct"]
    assert values["promotion"]["is_promoted"]
    assert [step for step in range(1, 6) if f"{step}/5" not in first.err] == []
    assert not {"GCSFileSystem", "apitools"} & {*re.findall(r"\w+", first.err)}  # what other libraries miss
    report = Path(values["report"]).read_text(encoding="utf-8")
    assert "NoStruct" in report and "data:image/jpeg;base64" in report
    assert pq.read_metadata(tmp_path / "demo" / "linked" / "links.parquet").num_rows > 0
    assert values["linked_version"]["documents"] > 50 and values["index"]["images"] > 100  # shown and searched
    assert Path(values["links"]).is_file()

    client = mlflow.MlflowClient(values["tracking_uri"], registry_uri=values["tracking_uri"])
    model = values["models"]["closed form"]
    champion = client.get_model_version_by_alias(model["model"], "champion")
    assert str(champion.version) == model["version"]
    run = client.get_run(champion.run_id)
    assert run.data.params["objective.name"] == "closed-form"
    assert run.inputs.dataset_inputs[0].dataset.digest == values["build"]["version"]
    assert len(client.get_metric_history(champion.run_id, "validation_auc")) == model["epochs"]

    second = multilink("demo", "--workspace", "demo", "--json").check()
    assert second.err.count("reused: ") == 5  # the data set, three models, the links of the version
    assert second.json["index"]["reused"] and second.json["scores"] == values["scores"]
    assert second.json["build"]["version"] == values["build"]["version"]


class Done:
    """In place of processes: what a step makes is told; AP is trained until the promotion."""

    def __init__(self) -> None:
        self.promoted, self.is_ap_trained, self.fails = threading.Event(), threading.Event(), False

    def call(self, work: Callable[[Say], Any], say: Say, *, title: str) -> Any:
        if not isinstance(work, partial) or work.func is not demo._done:
            return work(say)
        (make,) = work.args
        return getattr(self, title)(**make().keywords)

    def train(self, *, settings: tuple[str, ...], **_: Any) -> dict[str, Any]:
        objective = settings[-1].partition("=")[2]
        if objective == demo.OBJECTIVES["AP"]:
            self.is_ap_trained.set()
            assert self.promoted.wait(100)
        return {"model": objective, "model_uri": f"models:/{objective}/1", "version": "1"}

    def evaluate(self, *, model: str, **_: Any) -> dict[str, Any]:
        if self.fails:
            raise BuildError("no score")
        auc, random = {"low": 70.0, "high": 90.0}, {"auc": {"high": 60.0}}
        return {"auc": auc, "random": random, "baselines": {"nostruct": {}}, "report": model, "scored": model}

    def promote(self, **_: Any) -> dict[str, Any]:
        assert self.is_ap_trained.wait(100)
        self.promoted.set()
        return {"is_promoted": True, "reasons": ["is good"]}

    def link(self, *, model: str, **_: Any) -> dict[str, Any]:
        return {"step": "link", "model": model}

    def index(self, *, model: str, **_: Any) -> dict[str, Any]:
        return {"step": "index", "model": model}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Iterator[Done]:
    """The demo's steps without what they do."""
    told = Done()

    @contextmanager
    def ended() -> Iterator[Done]:  # as the processes are, where the block is left
        try:
            yield told
        finally:
            told.promoted.set()

    built = {"version": "v", "reused": True, "splits": {"train": {"documents": 1}}}
    monkeypatch.setattr(steps, "build", lambda say, **_: built)
    monkeypatch.setattr(demo, "scraping", lambda recording: nullcontext([]))
    monkeypatch.setattr(demo, "_link", lambda *arguments, **named: Path("page"))
    monkeypatch.setattr(demo, "remember", lambda *arguments, **named: None)
    monkeypatch.setattr(demo, "_score_lines", lambda report, beside, say: [f"AP by {beside['scored']}"])
    monkeypatch.setattr(demo, "_next_lines", lambda *arguments: [])
    monkeypatch.setattr(demo, "processes", ended)
    yield told


def test_ap_is_trained_beside_the_steps_that_do_not_need_it(done: Done, tmp_path: Path) -> None:
    ((lines, values),) = demo.main_job(tmp_path, workers=1, say=lambda line: None)
    assert lines == ["AP by models:/cross-document/1"]
    assert {title: model["model"] for title, model in values["models"].items()} == demo.OBJECTIVES
    assert list(values["scores"]) == ["closed form", "AP", "NoStruct"]
    steps = [values[name] for name in ("linked_version", "index")]
    assert steps == [{"step": name, "model": "models:/closed-form/1"} for name in ("link", "index")]


def test_a_step_that_fails_while_ap_is_trained_is_the_error(done: Done, tmp_path: Path) -> None:
    done.fails = True
    with pytest.raises(BuildError, match="no score"):
        next(demo.main_job(tmp_path, workers=1, say=lambda line: None))


def test_nothing_begins_after_the_end() -> None:
    processes = Processes()
    processes.end()
    with pytest.raises(BuildError, match="train: not begun, since the rest was ended"):
        processes.call(print, print, title="train")


def test_ap_stands_below_the_closed_form(tmp_path: Path) -> None:
    rows = [
        Score(name, value, value - 2, value + 2, 9, measure=measure)
        for measure, value in (("links", 80.0), ("class-names", 70.0), ("random", 50.0))
        for name in ("auc", "precision_at_1", "precision_at_5")
    ]
    about = {"model": "m", "model_version": "1", "dataset": "diy", "dataset_version": "v", "split": "test"}
    EvaluationReport(**about, rows=tuple(rows)).write(tmp_path)  # type: ignore[arg-type]
    beside = {row.metric: {"mean": 60.0, "low": 55.5, "high": 64.0} for row in rows}
    lines = {line.split("  ")[0]: line for line in _score_lines(tmp_path, beside, print)[1:]}
    assert list(lines) == ["Model", "closed form", "AP", "class names", "random"]
    assert "60.0 (55.5–64.0)" in lines["AP"]


@pytest.mark.trial  # a minute of a processor
def test_the_newsroom_finds_pictures_better_than_words_do(multilink: Run, tmp_path: Path) -> None:
    done = multilink("demo", "--news", "--workspace", "demo", "--json").check()
    found, build = done.json["search"], done.json["build"]
    assert build["stages"]["images"]["failed"] == 0  # every picture came from the recorded web
    scores = {key.partition(" role=all, ")[0]: value for key, value in found["scores"].items() if " role=all, " in key}
    assert scores["search reciprocal_rank"] > max(scores[f"{other} reciprocal_rank"] for other in ("bm25", "fusion"))
    assert done.json["promotion"]["is_promoted"]
    assert "5/5 evaluate-search" in done.err and "search " in done.out
    assert (tmp_path / "demo" / "lake" / "indexes" / "news").is_dir()
