import json
from pathlib import Path

import pytest

from schemas.messages import UsageError
from training.evaluation.evaluate import evaluate_scores

GOOD = {"id": "a", "scores": [[0.9, 0.1], [0.2, 0.3]], "links": [[0, 0]]}


def _file(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "scores.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_scores_by_hand(tmp_path: Path) -> None:
    second = {"id": "b", "scores": [[0.1, 0.4], [0.3, 0.2]], "links": [[1, 0], [1, 1]]}  # above 1 and 1 of 2 others
    found = evaluate_scores(_file(tmp_path, GOOD, "", second))
    assert found.document_auc == {"a": 100.0, "b": 50.0}
    means = {name: score.value for name, score in found.mean.items()}
    assert means == {"auc": 75.0, "precision_at_1": 50.0, "precision_at_5": 37.5}  # 1 and 2 of the 4 there are
    assert found.mean["auc"].low <= 75 <= found.mean["auc"].high


def test_documents_that_cannot_be_scored_are_counted(tmp_path: Path) -> None:
    others = [
        {"id": "unknown", "scores": [[1, 2]], "links": None},
        {"id": "none", "scores": [[1, 2]], "links": []},
        {"id": "all", "scores": [[1]], "links": [[0, 0]]},
        {"id": "nothing", "scores": [], "links": []},
    ]
    found = evaluate_scores(_file(tmp_path, GOOD, *others))
    assert found.scores.left_out == {"links unknown": 1, "no link": 2, "every pair linked": 1}
    assert len(found.scores) == 1 and len(found.ids) == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "b", ', "expected an object"),
        ("[1]", "Expected `object`"),
        ({"id": "b", "scores": [[1]]}, "required field `links`"),
        (GOOD | {"id": 3}, "`$.id`"),
        (GOOD, "'a' of line 1 again"),
        (GOOD | {"id": "b", "scores": [[1, 2], [3]]}, "equal length"),
        (GOOD | {"id": "b", "scores": [1, 2]}, "`$.scores[0]`"),
        (GOOD | {"id": "b", "scores": [[1, None], [1, 2]]}, "`$.scores[0][1]`"),
        ('{"id": "b", "scores": [[NaN, 1]], "links": []}', "malformed"),
        ('{"id": "b", "scores": [[1e999, 1]], "links": []}', "out of range"),
        (GOOD | {"id": "b", "links": [[0, 2]]}, "outside 2 sentences x 2 images"),
        (GOOD | {"id": "b", "links": [[-1, 0]]}, "outside"),
        (GOOD | {"id": "b", "links": [[0, 0, 1]]}, "`$.links[0]`"),
        (GOOD | {"id": "b", "links": [[0.0, True]]}, "`$.links[0][0]`"),
        (GOOD | {"id": "b", "links": {"0": 0}}, "`$.links`"),
        (GOOD | {"id": "b", "scores": [["1", "2"]]}, "`$.scores[0][0]`"),
        (GOOD | {"id": "b", "scores": 3}, "`$.scores`"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    with pytest.raises(UsageError, match="line 2") as caught:
        evaluate_scores(_file(tmp_path, GOOD, line))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_to_score(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="1 links unknown"):
        evaluate_scores(_file(tmp_path, {"id": "a", "scores": [[1, 2]], "links": None}))
