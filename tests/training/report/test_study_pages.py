"""The page of transfer says what was measured, and needs nothing else."""

import re

from training.evaluation.studies import StudyCell
from training.metrics.scores import Score
from training.report.pages import transfer_page, transfer_table
from training.report.sections import Row


def means(auc: float) -> dict[str, Score]:
    values = {"auc": auc, "precision_at_1": auc - 20, "precision_at_5": auc - 30}
    return {name: Score(name, value, value - 2, value + 2, 9) for name, value in values.items()}


def words(text: str) -> str:
    assert "http:" not in text and "https:" not in text and "<script" not in text
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_transfer_marks_the_models_own_data_and_stands_beside_the_paper() -> None:
    cells = [
        StudyCell(model="models:/a/1", trained_on="mscoco@v1", dataset="mscoco@v1", means=means(97.0)),
        StudyCell(model="models:/a/1", trained_on="mscoco@v1", dataset="story-dii@v2", means=means(78.0)),
        StudyCell(model="models:/b/1", trained_on="diy@v1", dataset="mscoco@v1", problem="no column <x>"),
        StudyCell(model="models:/b/1", trained_on="diy@v1", dataset="story-dii@v2", means=means(60.0)),
    ]
    assert transfer_table(cells).rows == (
        Row("models:/a/1, of mscoco@v1", ("97.0 (95.0–\u206099.0) ⌂", "78.0 (76.0–\u206080.0)")),
        Row("models:/b/1, of diy@v1", ("–", "60.0 (58.0–\u206062.0)")),
    )
    page = words(transfer_page(cells, split="test"))
    assert "2 models on 2 data sets" in page and "no column &lt;x&gt;" in page
    assert "Transfer from MSCOCO, supervised there" in page and "66.5" in page and "Li et al. 2022, table 4" in page
