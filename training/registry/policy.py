"""When a candidate may become the champion, as settings: the promotion policy, and its file.

A policy file is TOML; a key that is left out has the value below, an unknown one is an error:

    latest_only = true            # the data set scored on must be the latest version in the lake
    measure = "auto"              # what decides: auc, reciprocal_rank, recall_at_1, _5, _10; auto: see `Measure`

    [minimum]                     # means in percent that a candidate must reach
    auc = 70.0
    precision_at_1 = 40.0

    [[guards]]                    # other data sets, on their latest version, on which it may not fall back
    dataset = "rqa"
    margin = 2.0

What the settings do is `promotion.py`'s.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path

from schemas.configs import require, restore
from schemas.documents import Split
from schemas.errors import ConfigError, NotFoundError
from training.evaluation.bootstrap import LEVEL, RESAMPLES


class Measure(StrEnum):
    """What decides; all but AUC are of retrieval, an image for a text, and exist where AUC does not.

    `auto` is AUC, and where no document has one (a text and an image each), the reciprocal rank.
    """

    AUTO = "auto"
    AUC = "auc"
    RECIPROCAL_RANK = "reciprocal_rank"
    RECALL_AT_1 = "recall_at_1"
    RECALL_AT_5 = "recall_at_5"
    RECALL_AT_10 = "recall_at_10"

    @property
    def is_of_retrieval(self) -> bool:
        """Return whether it is for sure of retrieval."""
        return self not in (Measure.AUTO, Measure.AUC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum:
    """Means in percent that a candidate must reach on the target; None: any.

    The first three are of links, the others of retrieval: they are of the kind of the policy's measure.
    """

    auc: float | None = None
    precision_at_1: float | None = None
    precision_at_5: float | None = None
    reciprocal_rank: float | None = None
    recall_at_1: float | None = None
    recall_at_5: float | None = None
    recall_at_10: float | None = None

    def __post_init__(self) -> None:
        for name in (item.name for item in fields(self)):
            value = getattr(self, name)
            is_percent = value is None or 0 <= value <= 100
            require(is_percent, field=f"minimum.{name}", value=value, rule="must be from 0 to 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A data set on which a candidate must keep what the champion can.

    Attributes:
        dataset: its name; the latest version is scored.
        margin: mean of the measure, in percentage points, that the candidate may lose.
        split: whose documents are scored.
        measure: what decides on this data set.
    """

    dataset: str = ""
    margin: float = 0.0
    split: Split = Split.TEST
    measure: Measure = Measure.AUTO

    def __post_init__(self) -> None:
        is_name = bool(self.dataset) and "@" not in self.dataset
        rule = "expected a name without version; the latest is scored"
        require(is_name, field="guards.dataset", value=self.dataset, rule=rule)
        require(self.margin >= 0, field="guards.margin", value=self.margin, rule="must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of the rule.

    Attributes:
        level: of the intervals.
        resamples: bootstrap samples of the documents.
        seed: of the samples.
        measure: what decides on the target.
        random_auc: mean AUC of a model that knows nothing, in percent.
        latest_only: whether the data set scored on must be the latest version in its lake.
        minimum: scores that must be reached.
        guards: data sets on which the candidate may not fall back.
    """

    level: float = LEVEL
    resamples: int = RESAMPLES
    seed: int = 0
    measure: Measure = Measure.AUTO
    random_auc: float = 50.0
    latest_only: bool = True
    minimum: Minimum = field(default_factory=Minimum)
    guards: tuple[Guard, ...] = ()

    def __post_init__(self) -> None:
        require(0 < self.level < 1, field="level", value=self.level, rule="must be between 0 and 1")
        require(self.resamples >= 1, field="resamples", value=self.resamples, rule="must be at least 1")
        require(self.seed >= 0, field="seed", value=self.seed, rule="must not be negative")
        is_percent = 0 <= self.random_auc <= 100
        require(is_percent, field="random_auc", value=self.random_auc, rule="must be from 0 to 100")
        names = [guard.dataset for guard in self.guards]
        require(len(set(names)) == len(names), field="guards", value=names, rule="name a data set once")


STANDARD_POLICY = Policy()


def read_policy(path: Path) -> Policy:
    """Return the policy of a TOML file.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is no TOML, a key is unknown (the nearest is named), a value has the wrong type or range.
    """
    if not path.is_file():
        raise NotFoundError(f"--policy {path}: no such file")
    try:
        return restore(Policy, tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"--policy {path}: expected TOML: {problem}") from problem
    except ConfigError as problem:
        raise ConfigError(f"--policy {path}: {problem}") from problem
