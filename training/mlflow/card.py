"""The model card of a registered version: what a person must know before using it, as Markdown (`model_card.md.j2`).

It says what is known when a model is registered, and is written anew with the scores when the model has been evaluated
on the data it is for. The reports themselves are kept beside it.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib import metadata

from jinja2 import Environment, PackageLoader, StrictUndefined

from schemas.configs import resolve
from training.evaluation.baselines import Baseline
from training.evaluation.beside import NOSTRUCT
from training.evaluation.metrics.scores import ScoreKind
from training.evaluation.rows import EvaluationReport
from training.mlflow.registry import ModelVersion
from training.mlflow.runs import flatten
from training.model import LinkModel
from training.requirements import told

CARD_FILE = "model_card.md"
OWN = ("links", "pairs")
SHOWN = (*OWN, NOSTRUCT, *map(str, Baseline))
METRICS = {metric for kind in ScoreKind for metric in kind.metrics}
PACKAGES = ("torch", "numpy", "scipy", "pyarrow", "lapjv")


def installed_versions() -> dict[str, str]:
    """Return the installed version of each package that a model needs to be used; absent ones are left out."""
    found = {}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def model_card(model: LinkModel, version: ModelVersion, report: EvaluationReport | None) -> str:
    """Return the card of a registered model, with the scores of its evaluation where there is one."""
    card = model.card
    environment = Environment(
        loader=PackageLoader("training.mlflow", "."), undefined=StrictUndefined, trim_blocks=True, autoescape=False
    )
    return environment.get_template("model_card.md.j2").render(
        version=version,
        data=card.data,
        config=card.config,
        told=told(card.config),
        epoch=card.epoch,
        words=len(model.vocabulary or ()),
        report=report,
        rows=[
            row
            for row in (() if report is None else report.rows)
            if row.value is not None and row.metric in METRICS and row.measure in SHOWN and "=" not in row.group
        ],
        own=OWN,
        tables={
            "Settings": flatten(resolve(card.config)),
            "Environment it was registered in": {"Python": platform.python_version()} | installed_versions(),
            "Tags": version.tags,
        },
    )
