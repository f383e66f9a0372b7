"""What the commands that measure and register nothing do: the supervised upper bound, and transfer.

Plain functions from arguments to a summary, as in `commands.py`; parsing and printing are `study_cli.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.configs import override
from schemas.documents import Split
from schemas.lake import Lake
from training.evaluation.rows import interval_json
from training.evaluation.studies import CurvePoint, TransferCell, supervised_curve, transfer_cells
from training.mlflow.loading import load
from training.mlflow.runs import open_tracking
from training.recipes import recipe as named_recipe

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSummary:
    """The supervised upper bound by share of labels, the unsupervised run first."""

    dataset: str
    split: str
    points: tuple[CurvePoint, ...]

    def to_json(self) -> dict[str, Any]:
        points = [
            {"objective": point.objective, "share": point.share, "labelled": point.labelled}
            | {metric: interval_json(score) for metric, score in point.means.items()}
            for point in self.points
        ]
        return {"dataset": self.dataset, "split": self.split, "points": points}


def run_supervised(
    *,
    dataset: str,
    lake: str,
    recipe: str,
    overrides: Sequence[str] = (),
    shares: Sequence[float],
    split: str = Split.TEST,
    say: Say,
) -> CurveSummary:
    """Train a recipe without links, and supervised with each share of them; judge all on a split.

    Raises:
        UsageError: the recipe, data set or split is not there, or they do not fit together.
    """
    home = Lake.at(lake)
    reference = "@".join(home.find(dataset))
    config = override(named_recipe(recipe), overrides)
    points = supervised_curve(config, home, reference, shares=shares, split=split, say=say)
    return CurveSummary(dataset=reference, split=str(split), points=tuple(points))


def run_transfer(
    *,
    models: Sequence[str],
    datasets: Sequence[str],
    lake: str,
    split: str = Split.TEST,
    tracking: str | None = None,
    say: Say,
) -> tuple[TransferCell, ...]:
    """Judge every model on every data set.

    Raises:
        UsageError: a model, data set or split is not there.
    """
    home = Lake.at(lake)
    references = ["@".join(home.find(dataset)) for dataset in datasets]
    client = open_tracking(tracking)
    loaded = {found.uri: found.model for found in (load(model, client) for model in models)}
    cells: list[TransferCell] = []
    for cell in transfer_cells(loaded, home, references, split):
        say(f"{cell.model} on {cell.dataset}: " + (cell.problem or "done"))
        cells.append(cell)
    return tuple(cells)


def cell_json(cell: TransferCell) -> dict[str, Any]:
    """Return a cell with its means; one that could not be judged has none."""
    return {
        "model": cell.model,
        "trained_on": cell.trained_on,
        "dataset": cell.dataset,
        "is_transfer": cell.is_transfer,
        "problem": cell.problem,
        **{metric: interval_json(score) for metric, score in cell.means.items()},
    }
