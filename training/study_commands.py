"""What the commands that measure and register nothing do: baselines, the supervised upper bound, transfer.

Plain functions from arguments to a summary, as in `commands.py`; parsing and printing are `study_cli.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemas.configs import override
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from training.commands import EvaluateSummary
from training.evaluation.baselines import (
    Baseline,
    BaselineConfig,
    evaluate_joint_embeddings,
    evaluate_random,
    read_and_evaluate_object_detection,
)
from training.evaluation.study_pages import StudiedRun, write_supervised
from training.evaluation.transfer import TransferCell, transfer_cells
from training.mlflow.loading import load
from training.mlflow.runs import open_tracking
from training.recipes import recipe as named_recipe
from training.supervised_curve import CurvePoint, supervised_curve

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSummary:
    """A baseline's scores, and what is to be known about how they came about.

    Attributes:
        scores: as a model's.
        notes: lines for a person.
        values: the same for a machine.
    """

    scores: EvaluateSummary
    notes: tuple[str, ...] = ()
    values: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return self.scores.to_json() | self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSummary:
    """The supervised upper bound by share of labels, the unsupervised run first."""

    dataset: str
    split: str
    points: tuple[CurvePoint, ...]

    def write(self, directory: Path) -> Path:
        """Write the curve as a page to a directory, made if missing, and return its path."""
        runs = [
            StudiedRun(
                objective=point.objective, share=point.share, labelled=point.labelled, means=point.evaluation.mean
            )
            for point in self.points
        ]
        return write_supervised(runs, directory, dataset=self.dataset, split=self.split)

    def to_json(self) -> dict[str, Any]:
        points = [
            {"objective": point.objective, "share": point.share, "labelled": point.labelled}
            | asdict(point.evaluation.mean)
            for point in self.points
        ]
        return {"dataset": self.dataset, "split": self.split, "points": points}


def run_baseline(
    *, baseline: str, dataset: str, lake: str, split: str = Split.TEST, settings: Sequence[str] = ()
) -> BaselineSummary:
    """Score a baseline on a split of a data set.

    Args:
        baseline: one of `Baseline`.
        dataset: NAME or NAME@VERSION.
        lake: path or URI.
        split: train, val or test.
        settings: `KEY=VALUE` of `BaselineConfig`.

    Raises:
        UsageError: there is no such baseline, data set, split or column, or no document can be scored.
    """
    known = ", ".join(Baseline)
    if baseline not in set(Baseline):
        raise UsageError(f"--baseline {baseline}: expected one of {known}")
    config, home = override(BaselineConfig(), settings), Lake.at(lake)
    reference = "@".join(home.find(dataset))
    notes: list[str] = []
    values: dict[str, Any] = {"baseline": str(baseline)}
    if baseline == Baseline.RANDOM:
        evaluation = evaluate_random(home, reference, split, seed=config.seed)
    elif baseline == Baseline.JOINT_EMBEDDINGS:
        evaluation = evaluate_joint_embeddings(
            home,
            reference,
            split,
            sentence_features=config.sentence_features,
            image_features=config.image_features,
        )
    else:
        found = read_and_evaluate_object_detection(home, reference, split, config=config)
        evaluation = found.chosen or found.best
        best = found.best.mean.auc.mean
        notes.append(
            "no validation document to choose K by: these are the scores of the best K on the split itself"
            if found.chosen is None
            else f"K = {found.chosen_k}, chosen on validation"
        )
        notes.append(f"the best K on the split itself, as the paper reports it: {found.best_k}, AUC {best:.1f}")
        values |= {"k": found.chosen_k, "best_k": found.best_k, "best_auc": best}
    scores = EvaluateSummary(evaluation=evaluation, dataset=reference, split=str(split))
    return BaselineSummary(scores=scores, notes=tuple(notes), values=values)


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
