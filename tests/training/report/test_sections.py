"""What was measured, as tables for the command line and the pages, and as rows of a file."""

import lakes
import numpy as np
import pytest

from training.evaluation.evaluate import EvaluationReport, absent, evaluate_matrices
from training.metrics.intervals import Interval, Score
from training.report.sections import Row, Table, absent_baselines, cell_text, pivot, score_table, sections


def retrieval(group, measure="retrieval", **changes):
    ends = {"low": 15.0, "high": 25.0} | changes
    yield from (Score(f"recall_at_{k}", 20.0, n=500, group=group, measure=measure, **ends) for k in (1, 5, 10))
    rank = {name: None if value is None else value / 10 for name, value in ends.items()}
    yield Score("median_rank", 7.5, n=500, group=group, measure=measure, unit="rank, from 1", **rank)


ROWS = (
    *retrieval("text to image, whole pool of 500"),
    *retrieval("text to image, 10 samples of 500", low=None, high=None, deviation=1.5),
    *retrieval("text to image, whole pool of 500", "refined retrieval"),
    *retrieval("role=headline, text to image, whole pool of 90"),
    Score("average_precision", 61.0, 55.0, 66.0, 100, "story", "relations"),
    Score("rate", 30.0, n=100, group="story", measure="relations"),
    Score("average_precision", None, n=100, group="meta", measure="relations"),
    Score("auc", 70.0, 60.0, 80.0, 9, "language=de", "links"),
    Score("r_squared", 12.0, n=9, group="spread", measure="analysis"),
    Score("p", 0.0001, n=9, group="spread", measure="analysis", unit="probability"),
    Score(
        "threshold",
        group="precision 90%",
        measure="calibration",
        unit="similarity",
        note="none is proven by 9 validation documents",
    ),
    absent("analysis", "too few"),
    absent("object-detection", "no classes"),
)


def texts(table):
    return {row.name: tuple(map(cell_text, row.cells)) for row in table.rows}


def test_tables_say_what_was_measured():
    found = sections(ROWS)
    rows = texts(found["retrieval"])
    assert list(rows) == [
        "text to image, whole pool of 500",
        "text to image, 10 samples of 500",
        "text to image, whole pool of 500, refined by relations",
    ]
    assert rows["text to image, 10 samples of 500"] == ("20.0 ± 1.5",) * 3 + ("7.5 ± 0.1",)
    assert rows["text to image, whole pool of 500"][3] == "7.5 (1.5–\u20602.5)"
    assert texts(found["relations"]) == {
        "story": ("61.0 (55.0–\u206066.0)", "30.0", "100"),
        "meta": ("–", "", "100"),
    }
    assert texts(found["groups"])["language=de"] == ("70.0 (60.0–\u206080.0)", "", "", "9")
    assert texts(found["regressions"])["spread"] == ("12.0", "", "", "", "<\u00a00.001")
    assert texts(found["thresholds"])["90%"][0] == "none is proven by 9 validation documents"
    assert absent_baselines(ROWS) == {"object detection": "no classes"}


def test_published_retrieval_stands_beside_ours():
    rows = texts(sections(ROWS, dataset="cite")["retrieval"])
    assert rows["text to image: CMCM (Alikhani et al. 2022, table 4: test split, among 500)"] == (
        "46.5",
        "51.4",
        "53.9",
        "4.2",
    )
    assert len(rows) == 5 and len(sections(ROWS, dataset="diy")["retrieval"].rows) == 3
    news = texts(sections(ROWS, dataset="news")["retrieval"])
    assert news["image to text: HAL (Liu et al. 2020, table 1, captions: validation split, among 1,200)"] == (
        "",
        "",
        "49.8",
        "",
    )
    own, beside = sections(ROWS, dataset="news")["retrieval_groups"].rows
    assert own.name.startswith("role=headline") and tuple(map(cell_text, beside.cells)) == ("", "", "22.9", "")
    assert beside.name == "full model (Liu et al. 2020, table 1, this source alone: validation split, among 1,200)"


def test_published_rows_say_where_they_stand_in_text_too():
    means = [
        Score(metric, 50.0, 40.0, 60.0, 9, measure="links") for metric in ("auc", "precision_at_1", "precision_at_5")
    ]
    lines = score_table(means, "model", dataset="rqa").lines()
    assert any(line.startswith("AP (Hessel et al. 2019, table 3: test split)  ") for line in lines)
    assert [line.split()[0] for line in score_table(means, "model").lines()] == ["Model", "model"]


def test_what_was_not_measured_is_not_there():
    assert sections([absent("calibration", "no validation split")]) == {} and score_table([], "model") is None


def test_a_table_is_aligned_text():
    table = Table(("Model", "AUC"), (Row("a", (Score("auc", 70.0, 60.0, 80.0),)), Row("longer", ("",))))
    assert table.lines() == ["Model                AUC", "a       70.0 (60.0–80.0)", "longer"]
    assert pivot(ROWS, {"nothing": "x"}, "Group") is None


def test_differences_are_signed():
    cells = [each.score("auc", n=0, unit="points") for each in (Interval(1.25, 0.5, 2.0), Interval(-0.01, -2.0, 2.0))]
    assert [cell_text(cell) for cell in cells] == ["+1.2 (+0.5 to +2.0)", "0.0 (−2.0 to +2.0)"]


def test_the_table_has_a_row_per_number_and_survives_its_file(tmp_path):
    matrices = [np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.1, 0.9]])]
    evaluation = evaluate_matrices(["a", "b"], matrices, [np.array([[0, 0]]), np.array([[0, 0]])], where="here")
    identity = {"model": "m", "model_version": None, "dataset": "d", "dataset_version": "v", "split": "test"}
    report = EvaluationReport(**identity, rows=(*evaluation.rows(), *ROWS))
    assert lakes.read_rows(report.write(tmp_path / "new")) == report.rows
    rows = {(row.measure, row.metric, row.group): row for row in report.rows}
    assert len(rows) == len(report.rows)
    assert rows["document", "auc", "b"].value == 0.0
    assert rows["random", "auc", ""].n == 2
    assert "document auc b" not in report.values() and report.values()["links auc"] == 50.0
    assert "relations average_precision meta" not in report.values()
    table = score_table(report.rows, "model")
    assert [row.name for row in table.rows] == ["model", "random"]
    assert table.rows[0].cells[0].value == pytest.approx(50.0)
