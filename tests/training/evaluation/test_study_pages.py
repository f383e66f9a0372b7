"""The pages of the supervised curve and of transfer say what was measured, and need nothing else."""

import re
from pathlib import Path

from training.evaluation.bootstrap import Interval
from training.evaluation.evaluate import MeanScores
from training.evaluation.study_pages import (
    StudiedRun,
    first_share_above,
    transfer_grid,
    write_supervised,
    write_transfer,
)
from training.evaluation.transfer import TransferCell


def means(auc: float) -> MeanScores:
    return MeanScores(*(Interval(value, value - 2, value + 2) for value in (auc, auc - 20, auc - 30)))


def run(share: float | None, auc: float) -> StudiedRun:
    objective = "cross-document" if share is None else "supervised"
    return StudiedRun(objective=objective, share=share, labelled=round(1000 * (share or 0)), means=means(auc))


def words(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    assert "http:" not in text and "https:" not in text and "<script" not in text
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_the_curve_says_which_share_is_enough(tmp_path: Path) -> None:
    runs = [run(None, 85.0), run(0.1, 76.5), run(0.4, 86.25), run(1.0, 91.0)]
    assert first_share_above(runs) == 0.4 and first_share_above(runs[:2]) is None
    page = words(write_supervised(runs, tmp_path / "curve", dataset="story-dii@v1", split="test"))
    assert "It takes the links of 40% of the documents to pass the AUC of the one that sees no link" in page
    for expected in ("supervised, 10%", "links of 400 documents", "86.2", "74.5–78.5", "Li et al. 2022, table 2"):
        assert expected in page
    hardly = words(write_supervised(runs[:2], tmp_path / "short", dataset="mine@v1", split="val"))
    assert "No share tried here reaches" in hardly and "Published" not in hardly


def test_transfer_marks_the_models_own_data_and_stands_beside_the_paper(tmp_path: Path) -> None:
    cells = [
        TransferCell(model="models:/a/1", trained_on="mscoco@v1", dataset="mscoco@v1", scores=means(97.0)),
        TransferCell(model="models:/a/1", trained_on="mscoco@v1", dataset="story-dii@v2", scores=means(78.0)),
        TransferCell(
            model="models:/b/1", trained_on="diy@v1", dataset="mscoco@v1", scores=None, problem="no column <x>"
        ),
        TransferCell(model="models:/b/1", trained_on="diy@v1", dataset="story-dii@v2", scores=means(60.0)),
    ]
    assert transfer_grid(cells).rows == (
        ("models:/a/1, of mscoco@v1", ("97.0 (95.0–\u206099.0) ⌂", "78.0 (76.0–\u206080.0)")),
        ("models:/b/1, of diy@v1", ("–", "60.0 (58.0–\u206062.0)")),
    )
    page = words(write_transfer(cells, tmp_path, split="test"))
    assert "2 models on 2 data sets" in page and "no column &lt;x&gt;" in page
    assert "Transfer from MSCOCO, supervised there" in page and "66.5" in page and "Li et al. 2022, table 4" in page
