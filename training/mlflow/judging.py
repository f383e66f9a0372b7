"""Scoring candidate, champion and best champion for the gate, on the data sets that its policy names.

The same data and the same models give the same scores, so that whoever has both can judge again (`verification.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.console import Say
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.config import Select, TrainConfig
from training.evaluation.models import evaluate_model
from training.mlflow.gate import Contest, Decision, contest_of, decide, refuse
from training.mlflow.loading import load_version
from training.mlflow.policy import Guard, Measure, Policy
from training.mlflow.registry import ModelVersion
from training.retrieval.interleaving import Preference

GATE_SPLIT = "gate"
_SEEN = (
    "its epoch was chosen by the links of the validation split, so that its scores there are too good; judge it on "
    "documents it has not seen: a split `gate` of the data set, or split in the policy"
)


@dataclass(frozen=True, slots=True)
class Rivals:
    """What a candidate is judged against.

    Attributes:
        champion: if there is one.
        best: the best champion, where that is another.
        attempt: how many candidates the best champion has met with this one.
        preference: of editors, between champion and candidate.
    """

    champion: ModelVersion | None
    best: ModelVersion | None
    attempt: int
    preference: Preference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The data that candidates are judged on.

    Attributes:
        lake: holds it.
        target: NAME@VERSION that the models are for.
        split: of the target.
        guards: NAME@VERSION and split of each of the policy's guard sets, by its name.
        latest: NAME@VERSION of the target's latest version; None: not asked for.
    """

    lake: Lake
    target: str
    split: str
    guards: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    latest: str | None = None


def find_ground(lake: Lake, target: str, *, split: str, guards: Sequence[Guard]) -> Ground:
    """Return what candidates are judged on now: NAME@VERSION and the latest versions of guard sets.

    Raises:
        NotFoundError: a data set is not in the lake.
    """
    found = {guard.dataset: ("@".join(lake.find(guard.dataset)), guard.split) for guard in guards}
    return Ground(
        lake=lake,
        target=target,
        split=_split(lake, target, split),
        guards={name: (reference, _split(lake, reference, split)) for name, (reference, split) in found.items()},
        latest="@".join(lake.find(target.partition("@")[0])),
    )


def judge(
    candidate: ModelVersion, rivals: Rivals, ground: Ground, policy: Policy, *, approved_by: str = "", say: Say
) -> tuple[Decision, bool]:
    """Return the decision by the models' scores, and whether the candidate's mean reaches the best champion's.

    Candidate, champion and best champion are scored on the target, the first two on the guard sets.

    Args:
        candidate: to be judged.
        rivals: what it is judged against.
        ground: data sets and splits.
        policy: settings of the rule.
        approved_by: who approved the candidate; empty: nobody did.
        say: takes a line of progress.

    Raises:
        UsageError: a model cannot be scored on a data set.
        IntegrityError: a model's files are not those that were registered.
    """
    compared = (candidate, rivals.champion, rivals.best)
    models = [(each, load_version(each).model) for each in compared if each is not None]

    def contest(reference: str, split: str, measure: Measure, count: int = 2) -> Contest:
        scored = []
        for version, model in models[:count]:
            say(f"scoring {version.uri} on {reference}, split {split}")
            try:
                scored.append(evaluate_model(model, ground.lake, reference, split, with_pairs=measure.is_of_retrieval))
            except UsageError as problem:
                raise UsageError(f"{version.uri}: {problem}") from problem
        return contest_of(reference, split, scored, measure, attempt=rivals.attempt)

    guards = policy.guards if rivals.champion is not None else ()
    own = contest(ground.target, ground.split, policy.measure, count=len(models))
    decision = decide(
        own,
        policy,
        guards={guard.dataset: contest(*ground.guards[guard.dataset], guard.measure) for guard in guards},
        latest=ground.latest,
        approved_by=approved_by,
        preference=rivals.preference,
    )
    if ground.split == Split.VAL and chosen_by_links(models[0][1].card.config):
        decision = refuse(decision, "unseen", _SEEN)
    best = own.best or own.champion
    return decision, best is None or bool(own.differences(best).sum() >= 0)


def chosen_by_links(config: TrainConfig) -> bool:
    """Return whether a model's epoch was chosen by validation links: by the loss of an objective that reads links."""
    return bool(config.needs.links) and config.training.select is Select.LOSS


def _split(lake: Lake, reference: str, named: str) -> str:
    """Return the split of NAME@VERSION to be judged on."""
    return named or (GATE_SPLIT if GATE_SPLIT in read_manifest(lake, reference)[0].splits else Split.VAL.value)
