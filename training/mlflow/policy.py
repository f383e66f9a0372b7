"""Settings of the gate that decides on promotions (`gate.py`), read from a file before anything heavy is imported.

A policy file is TOML; a key that is left out has its default, an unknown one is an error:

    measure = "auto"              # what decides: auc or reciprocal_rank; auto: see `Measure`
    split = "val"                 # whose documents are scored; never train or test
    margin = 1.0                  # points that a candidate may be worse than the champion, and than the best ever
    min_documents = 20            # that must have been scored
    latest_only = true            # the data set scored on must be the latest version in the lake
    approval = false              # whether a person must approve a version before it becomes the champion
    approvers = []                # who may: NAME, or NAME:KEY with the first digits of the key; empty: anyone
    verify = false                # whether a champion must be proved to be used (multilink verify)
    editors_preferred = true      # editors who compared it blind with the champion must prefer it
    forget_within_days = 30       # how long the champion may be used after data it was trained on was taken out

    [minimum]                     # means in percent that a candidate must reach
    auc = 70.0
    precision_at_1 = 40.0

    [[guards]]                    # other data sets, on their latest version, on which it may not fall back
    dataset = "rqa"
    margin = 2.0

    [[groups]]                    # groups of the documents, in none of which it may fall back by more than the margin
    by = "language"               # or source
"""

import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from schemas.configs import NonNegativeFloat, NonNegativeInt, PositiveInt, Settings, require, restore
from schemas.documents import Split
from schemas.messages import ConfigError, NotFoundError
from training.parts import LEVEL

Percent = Annotated[float, Meta(ge=0, le=100)]


class Measure(StrEnum):
    """What decides; the reciprocal rank is of retrieval, an image for a text, and exists where AUC does not.

    `auto` is AUC, and where no document has one (a text and an image each), the reciprocal rank.
    """

    AUTO = "auto"
    AUC = "auc"
    RECIPROCAL_RANK = "reciprocal_rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimum(Settings):
    """Means in percent that a candidate must reach on the target; None: any.

    The first three are of links, the last is of retrieval: they are of the kind of the policy's measure.
    """

    part: ClassVar[str] = "minimum"

    auc: Percent | None = None
    precision_at_1: Percent | None = None
    precision_at_5: Percent | None = None
    reciprocal_rank: Percent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard(Settings):
    """A data set on which a candidate must keep what the champion can.

    Attributes:
        dataset: its name; the latest version is scored.
        margin: mean of the measure, in percentage points, that the candidate may lose.
        measure: what decides on this data set.
    """

    part: ClassVar[str] = "guards"

    dataset: str = ""
    margin: NonNegativeFloat = 0.0
    measure: Measure = Measure.AUTO

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        is_name = bool(self.dataset) and "@" not in self.dataset
        rule = "expected a name without version; the latest is scored"
        require(is_name, field="guards.dataset", value=self.dataset, rule=rule)


class By(StrEnum):
    """What groups documents: their language, or the source that gave them."""

    LANGUAGE = "language"
    SOURCE = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups of the target's documents, in each of which a candidate must keep what the champions can.

    Attributes:
        by: what tells them apart.
    """

    by: By = By.LANGUAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Settings):
    """Settings of the rule.

    Attributes:
        level: of the intervals; of the comparison with champions, for the first candidate that a champion meets.
        measure: what decides on the target.
        margin: points of the measure's mean that a candidate may be worse than the champion, and than the best champion
            ever. Where too few documents can show that, a person is asked.
        split: whose documents are scored; empty: `gate` where the data set has such a split, else `val`. Never `train`,
            nor `test`: a champion chosen by the scores that are reported would make them too good. Where validation
            links chose the epoch, they are not held out (`judging.chose_epoch`).
        min_documents: how many documents must have been scored (with both models), on the target and on each guard.
        latest_only: whether the data set scored on must be the latest version in its lake.
        approval: whether a person must have approved the version.
        approvers: who may, also where a person is asked in doubt, as NAME or NAME:KEY; empty: anyone.
        verify: whether a champion is used only where its statements are signed by a trusted key.
        minimum: scores that must be reached.
        editors_preferred: whether editors who compared candidate and champion blind must be shown to prefer the
            candidate.
        forget_within_days: how many days it may be used after data that it was trained on was taken out of the lake;
            None: without end.
        guards: data sets on which the candidate may not fall back.
        groups: groups of the target's documents in which it may not: it must not be shown to be more than the margin
            worse, and where there are documents enough to show it, it must be shown to be at most that.
    """

    level: Annotated[float, Meta(gt=0, lt=1)] = LEVEL
    measure: Measure = Measure.AUTO
    margin: NonNegativeFloat = 1.0
    split: str = ""
    min_documents: PositiveInt = 20
    latest_only: bool = True
    approval: bool = False
    approvers: tuple[str, ...] = ()
    verify: bool = False
    editors_preferred: bool = False
    forget_within_days: NonNegativeInt | None = None
    minimum: Minimum = field(default_factory=Minimum)
    guards: tuple[Guard, ...] = ()
    groups: tuple[Groups, ...] = ()

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        rule = "models are trained on train, and scores on test are reported; expected another split"
        require(self.split not in (Split.TRAIN, Split.TEST), field="split", value=self.split, rule=rule)
        is_named = all(each.partition(":")[0].strip() for each in self.approvers)
        require(is_named, field="approvers", value=self.approvers, rule="expected NAME or NAME:KEY each")
        names = [guard.dataset for guard in self.guards]
        require(len(set(names)) == len(names), field="guards", value=names, rule="name a data set once")


STANDARD_POLICY = Policy()


def read_policy(path: Path | None) -> Policy:
    """Return the policy of a TOML file, or the standard policy where there is none.

    Raises:
        NotFoundError: there is no such file.
        ConfigError: it is no TOML, a key is unknown (the nearest is named), a value has the wrong type or range.
    """
    if path is None:
        return STANDARD_POLICY
    if not path.is_file():
        raise NotFoundError(f"--policy {path}: no such file")
    try:
        return restore(Policy, tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"--policy {path}: expected TOML: {problem}") from problem
    except ConfigError as problem:
        raise ConfigError(f"--policy {path}: {problem}") from problem
