"""Studies: the supervised upper bound, transfer between data sets, and the table of a sweep (`training.sweep`).

A supervised model to keep is trained as any other: `--set objective.name=supervised`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from schemas.configs import override
from schemas.documents import Split
from schemas.errors import ConfigError, NotFoundError, UsageError
from schemas.evaluation import Score
from schemas.lake import Lake
from training.config import ObjectiveName, TrainConfig
from training.data.loading import load_training_data
from training.evaluation.evaluate import evaluate_model
from training.evaluation.metrics.links import ScoreKind
from training.evaluation.rows import interval_json
from training.loop.context import Context, choose_device
from training.loop.trainer import train
from training.model import LinkModel


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One run of the supervised curve.

    Attributes:
        objective: what it minimised.
        share: of labelled training documents; None: no link was shown.
        labelled: training documents whose links were shown.
        means: metric -> mean link score of its kept model.
    """

    objective: str
    share: float | None
    labelled: int
    means: Mapping[str, Score]

    def to_json(self) -> dict[str, Any]:
        means = {metric: interval_json(score) for metric, score in self.means.items()}
        return {"objective": self.objective, "share": self.share, "labelled": self.labelled} | means


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCell:
    """One model on one data set.

    Attributes:
        model: its address.
        trained_on: NAME@VERSION.
        dataset: NAME@VERSION it is judged on.
        means: metric -> mean link score; empty where it cannot be judged.
        problem: why not ("" where it can).
    """

    model: str
    trained_on: str
    dataset: str
    means: Mapping[str, Score] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_transfer(self) -> bool:
        """Return whether model and data set are of different data sets (versions of one are not)."""
        return self.trained_on.partition("@")[0] != self.dataset.partition("@")[0]

    def to_json(self) -> dict[str, Any]:
        """Return the cell with its means; one that could not be judged has none."""
        return {
            "model": self.model,
            "trained_on": self.trained_on,
            "dataset": self.dataset,
            "is_transfer": self.is_transfer,
            "problem": self.problem,
            **{metric: interval_json(score) for metric, score in self.means.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """One combination.

    Attributes:
        settings: `key=value` of what is varied.
        model: address of the kept model; "" where there is none.
        run: id of the training run; "" where there is none.
        means: metric -> mean score of the model.
        kind: of the scores.
        problem: why the run came to no model ("" where it did).
    """

    settings: tuple[str, ...]
    model: str = ""
    run: str = ""
    means: Mapping[str, Score] = field(default_factory=dict)
    kind: ScoreKind = ScoreKind.LINKS
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        about = {"settings": list(self.settings), "model": self.model, "run": self.run, "problem": self.problem}
        return about | {metric: interval_json(score) for metric, score in self.means.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A table of cells; `run` is the id of the run that is their parent."""

    recipe: str
    dataset: str
    split: str
    run: str
    cells: tuple[SweepCell, ...]

    def to_json(self) -> dict[str, Any]:
        about = {"recipe": self.recipe, "dataset": self.dataset, "split": self.split, "run": self.run}
        return about | {"cells": [cell.to_json() for cell in self.cells]}


def combinations(vary: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every combination of `KEY=VALUE,VALUE,...` items as `KEY=VALUE` assignments; the first varies slowest.

    Raises:
        ConfigError: an item of another form, or a key given twice.
    """
    axes: dict[str, list[str]] = {}
    for item in vary:
        key, _, values = item.partition("=")
        parts = [value.strip() for value in values.split(",")]
        if not key.strip() or not all(parts):
            raise ConfigError(f"--vary {item}: expected KEY=VALUE,VALUE,...")
        if key.strip() in axes:
            raise ConfigError(f"--vary {item}: {key.strip()} is varied already")
        axes[key.strip()] = [f"{key.strip()}={value}" for value in dict.fromkeys(parts)]
    return list(product(*axes.values()))


def supervised_curve(
    config: TrainConfig,
    lake: Lake,
    reference: str,
    *,
    shares: Sequence[float],
    split: Split | str = Split.TEST,
    say: Callable[[str], None],
) -> Iterator[CurvePoint]:
    """Yield the configuration's own run, then a supervised one for each share, in the given order (Li 2022, figure 5).

    All settings but the objective's name and the labelled share stay as they are; documents without shown links take
    part in no loss, so that fewer labels mean fewer steps that teach, as in the paper. The runs are of this process.

    Raises:
        UsageError: the configuration is supervised already, or the data set does not fit (no link is known).
        ConfigError: a share is not in (0, 1].
    """
    if config.objective.reads_links:
        raise UsageError(f"objective.name = '{config.objective.name}': expected the objective to compare with")
    supervised = ObjectiveName.SUPERVISED.value
    shown = [
        override(config, [f"objective.name={supervised}", f"objective.labelled_share={share}"]) for share in shares
    ]
    for each in (config, *shown):
        share = each.objective.labelled_share if each.objective.reads_links else None
        say(f"training {each.objective.name}" + ("" if share is None else f" on {100 * share:g}% of the links"))
        data = load_training_data(lake, reference, each)
        with tempfile.TemporaryDirectory(prefix="multilink-") as folder:
            context = Context(device=choose_device(each.training.device))
            model = LinkModel.load(train(each, data, context, run_directory=Path(folder)).model)
        yield CurvePoint(
            objective=each.objective.name,
            share=share,
            labelled=sum(links is not None for links in data.training.shown_links or ()),
            means=evaluate_model(model, lake, reference, split).mean,
        )


def transfer_cells(
    models: Mapping[str, LinkModel],
    lake: Lake,
    references: Sequence[str],
    split: Split | str = Split.TEST,
    *,
    say: Callable[[str], None],
) -> Iterator[TransferCell]:
    """Yield every model on every data set, model by model (Li 2022, table 4).

    A data set without the columns a model reads is no error: its cell says what is missing.

    Args:
        models: address -> model.
        lake: that the data sets are in.
        references: NAME@VERSION each.
        split: of every data set.
        say: takes a line of progress.

    Raises:
        NotFoundError: a data set, version or split is not there.
    """
    for address, model in models.items():
        for reference in references:
            cell = TransferCell(model=address, trained_on=model.card.data.reference, dataset=reference)
            try:
                cell = replace(cell, means=evaluate_model(model, lake, reference, split).mean)
            except NotFoundError:
                raise
            except UsageError as problem:
                cell = replace(cell, problem=str(problem))
            say(f"{cell.model} on {cell.dataset}: " + (cell.problem or "done"))
            yield cell
