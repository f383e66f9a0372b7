"""The table of a transfer; those of comparisons and sweeps are tested where these are made."""

from training.evaluation.studies import StudyCell
from training.metrics.intervals import Score
from training.report.sections import transfer_lines


def means(auc: float) -> dict[str, Score]:
    values = {"auc": auc, "precision_at_1": auc - 20, "precision_at_5": auc - 30}
    return {name: Score(name, value, value - 2, value + 2, 9) for name, value in values.items()}


def test_a_transfer_marks_the_models_own_data_and_is_above_the_papers() -> None:
    cells = [
        StudyCell(model="models:/a/1", trained_on="mscoco@v1", dataset="mscoco@v1", means=means(97.0)),
        StudyCell(model="models:/a/1", trained_on="mscoco@v1", dataset="story-dii@v2", means=means(78.0)),
        StudyCell(model="models:/b/1", trained_on="diy@v1", dataset="mscoco@v1", problem="no column <x>"),
        StudyCell(model="models:/b/1", trained_on="diy@v1", dataset="story-dii@v2", means=means(60.0)),
    ]
    lines = transfer_lines(cells)
    assert [" ".join(line.split()) for line in (*lines[:3], *lines[-2:])] == [
        "AUC mscoco@v1 story-dii@v2",
        "models:/a/1, of mscoco@v1 97.0 (95.0–99.0) ⌂ 78.0 (76.0–80.0)",
        "models:/b/1, of diy@v1 – 60.0 (58.0–62.0)",
        "Transfer from MSCOCO, supervised there (Li et al. 2022, table 4: test split) 78.6",
        "- models:/b/1 on mscoco@v1: no column <x>",
    ]
    assert "C+I+D (Li et al. 2022, table 2: test split) 99.3 85.5" in (" ".join(line.split()) for line in lines)
