"""The supervised upper bound by share of labelled documents, beside what is learnt without a link (Li 2022, figure 5).

The runs are of this process and leave nothing behind: they measure, they make no model to be used. A supervised model
to keep is trained as any other: `--set objective.name=supervised`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.configs import override
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from training.config import ObjectiveName, TrainConfig
from training.data.loading import load_training_data
from training.evaluation.evaluate import Evaluation, evaluate_model
from training.loop.context import SingleProcess, choose_device
from training.loop.trainer import train
from training.model import LinkModel


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One run.

    Attributes:
        objective: what it minimised.
        share: of labelled training documents; None: no link was shown.
        labelled: training documents whose links were shown.
        evaluation: of its kept model.
    """

    objective: str
    share: float | None
    labelled: int
    evaluation: Evaluation


def supervised_curve(
    config: TrainConfig,
    lake: Lake,
    reference: str,
    *,
    shares: Sequence[float],
    split: Split | str = Split.TEST,
    say: Callable[[str], None],
) -> Iterator[CurvePoint]:
    """Yield the configuration's own run, then a supervised one for each share, in the given order.

    All settings but the objective's name and the labelled share stay as they are; documents without shown links take
    part in no loss, so that fewer labels mean fewer steps that teach, as in the paper.

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
        yield _point(each, lake, reference, split, share)


def _point(config: TrainConfig, lake: Lake, reference: str, split: Split | str, share: float | None) -> CurvePoint:
    data = load_training_data(lake, reference, config)
    shown = data.training.shown_links or ()
    with tempfile.TemporaryDirectory(prefix="multilink-") as folder:
        context = SingleProcess(device=choose_device(config.training.device))
        model = LinkModel.load(train(config, data, context, run_directory=Path(folder)).model)
    return CurvePoint(
        objective=config.objective.name,
        share=share,
        labelled=sum(links is not None for links in shown),
        evaluation=evaluate_model(model, lake, reference, split),
    )
