"""What was measured, as sections of the report and as rows of the table."""

import dataclasses
import re

import numpy as np
import pytest

from training.evaluation.bootstrap import Interval
from training.evaluation.breakdowns import GroupScores
from training.evaluation.metrics.calibration import Observations, fit_calibration, judge_calibration
from training.evaluation.captions import CaptionScores
from training.evaluation.confusion import ConfusionGroup
from training.evaluation.evaluate import evaluate_matrices
from training.evaluation.measure_parts import loss_and_auc, measure_parts
from training.evaluation.measures import ConfusedImages, Measures
from training.evaluation.relations import RelationScore
from training.evaluation.retrieval import Direction, RetrievalScores, Statistic
from training.evaluation.rows import evaluation_report, read_evaluation


def retrieval(samples):
    number = Statistic(20.0, deviation=1.5) if samples else Statistic(20.0, 15.0, 25.0)
    return RetrievalScores(
        direction=Direction.TEXT_TO_IMAGE,
        queries=500,
        candidates=499.6,
        samples=samples,
        recall={1: number, 5: number, 10: number},
        median_rank=Statistic(7.5, deviation=0.5) if samples else Statistic(7.5),
    )


def measures(**changes):
    interval = Interval(70.0, 60.0, 80.0)
    numbers = np.random.default_rng(0)
    similarities = numbers.random(300)
    seen = Observations(
        similarities=similarities,
        are_true=numbers.random(300) < similarities,
        documents=np.arange(300) // 10,
        document_count=30,
    )
    values = {
        "retrieval": (retrieval(0), retrieval(10)),
        "refined": (retrieval(0),),
        "relations": (
            RelationScore(name="story", average_precision=61.0, low=55.0, high=66.0, rate=30.0, pairs=100),
            RelationScore(name="meta", average_precision=None, low=None, high=None, rate=0.0, pairs=100),
        ),
        "groups": (
            GroupScores(
                kind="language", name="de", documents=9, auc=interval, precision_at_1=interval, precision_at_5=interval
            ),
        ),
        "confusion": (
            ConfusionGroup(low=0.1, high=0.5, sentences=9, right=70.0, confused=10.0, elsewhere=20.0, chance=12.0),
        ),
        "confused": (ConfusedImages(document="d1", sentence="<b>", image="aa", chosen="bb", nearness=0.9),),
        "calibration": judge_calibration(fit_calibration(seen, dataset="d@v", split="val"), seen),
        "captions": CaptionScores(images=5, values={"BLEU-4": 12.0}, absent={"METEOR": "no Java"}, signature="x"),
        "absent": {"analysis": "too few"},
    }
    return Measures(**(values | changes))


def test_tables_say_what_was_measured():
    parts = measure_parts(measures(), {})
    assert [name for name, _ in parts.retrieval.rows] == [
        "text to image, all 500",
        "text to image, 10 samples of 500",
        "text to image, all 500, refined by relations",
    ]
    assert parts.retrieval.rows[1][1] == ("20.0 ± 1.5",) * 3 + ("7.5 ± 0.5",)
    assert parts.relations.rows[0][1][0] == "61.0" and parts.relations.rows[1][1][0] == "–"
    assert parts.groups.rows[0][0] == "language de" and parts.captions.rows == (("BLEU-4", ("12.0",)),)
    assert parts.confused[0].image is None and parts.spread == ()
    heights = [float(h) for h in re.findall(r'class="part-\w+"[^>]*height="([\d.]+)"', parts.confusion)]
    assert heights[0] / sum(heights) == pytest.approx(0.7, abs=0.01)


def test_published_retrieval_stands_beside_ours():
    rows = measure_parts(measures(refined=()), {}, dataset="cite").retrieval.rows
    assert rows[-1] == (
        "text to image: CMCM (Alikhani et al. 2022, table 4, among 500)",
        ("46.5", "51.4", "53.9", "4.2"),
    )
    assert len(rows) == 4 and len(measure_parts(measures(), {}, dataset="diy").retrieval.rows) == 3
    news = dict(measure_parts(measures(), {}, dataset="news").retrieval.rows)
    assert news["image to text: HAL (Liu et al. 2020, table 1, captions)"] == ("", "", "49.8", "")


def test_what_was_not_measured_is_not_there():
    parts = measure_parts(Measures(absent={"calibration": "no validation split"}), {})
    empty = (parts.retrieval, parts.relations, parts.groups, parts.regressions, parts.confusion, parts.calibration)
    assert set(empty) == {None} and parts.no_calibration == "no validation split"


def test_loss_against_auc_by_epoch():
    history = [{"epoch": e, "validation_loss": 1 / e, "validation_auc": 60.0 + e} for e in (1, 2, 3)]
    history.append({"epoch": 4, "validation_loss": float("nan"), "validation_auc": 70.0})
    chart, correlation = loss_and_auc(history, kept_epoch=2)
    assert correlation == pytest.approx(-1.0)
    assert chart.count('class="dot"') == 2 and chart.count('class="ring"') == 1
    assert loss_and_auc(history[:1], kept_epoch=1) is None


def test_the_table_has_a_row_per_number_and_survives_its_file(tmp_path):
    matrices = [np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.1, 0.9]])]
    links = [np.array([[0, 0]]), np.array([[0, 0]])]
    evaluation = evaluate_matrices(["a", "b"], matrices, links, where="here")
    identity = {"model": "m", "model_version": None, "dataset": "d", "dataset_version": "v", "split": "test"}
    report = evaluation_report(evaluation, measures(), **identity)
    assert read_evaluation(report.write(tmp_path / "new")) == report.rows
    rows = {(row.measure, row.metric, row.group): row for row in report.rows}
    assert len(rows) == len(report.rows)
    assert rows["document", "auc", "b"].value == 0.0
    assert rows["relations", "average_precision", "meta"].value is None
    assert rows["retrieval", "recall_at_5", "text to image, 10 samples of 500"].deviation == 1.5
    assert rows["captions", "METEOR", ""].note == "no Java" and rows["analysis", "absent", ""].note == "too few"
    assert rows["links", "auc", "language=de"].low == 60.0
    assert all(dataclasses.asdict(row)["model"] == "m" for row in report.rows)
    assert "document auc b" not in report.values() and report.values()["links auc"] == 50.0
