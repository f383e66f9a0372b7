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
from schemas.parts import read_part, split_parts
from training.config import Select
from training.evaluation.evaluate import Evaluation
from training.evaluation.models import evaluate_model
from training.metrics.preference import Preference
from training.mlflow.gate import Contest, Decision, contest_of, decide, refuse
from training.mlflow.loading import LoadedModel, load_version
from training.mlflow.policy import By, Guard, Measure, Policy
from training.model import ModelCard
from training.promotions.record import Approval, ModelVersion

GATE_SPLIT = "gate"
NOT_HELD_OUT = (
    "its epoch was chosen by scores on the validation split, so its scores there are too high; judge it on held-out "
    "documents: a split `gate` of the data set, or another split in the policy"
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
class JudgingData:
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


def find_judging_data(lake: Lake, target: str, *, split: str, guards: Sequence[Guard]) -> JudgingData:
    """Return what candidates are judged on now: NAME@VERSION and the latest versions of guard sets.

    Raises:
        NotFoundError: a data set is not in the lake.
    """
    found = {guard.dataset: ("@".join(lake.find(guard.dataset)), guard.split) for guard in guards}
    return JudgingData(
        lake=lake,
        target=target,
        split=gate_split(lake, target, split),
        guards={name: (reference, gate_split(lake, reference, split)) for name, (reference, split) in found.items()},
        latest="@".join(lake.find(target.partition("@")[0])),
    )


def judge(
    candidate: LoadedModel,
    rivals: Rivals,
    data: JudgingData,
    policy: Policy,
    *,
    approvals: Sequence[Approval] = (),
    say: Say,
) -> Decision:
    """Return the decision by the models' scores.

    Candidate, champion and best champion are scored on the target, the first two on the guard sets; models with the
    same files are scored once.

    Args:
        candidate: to be judged; a registered version.
        rivals: what it is judged against.
        data: data sets and splits.
        policy: settings of the rule.
        approvals: of the candidate.
        say: takes a line of progress.

    Raises:
        UsageError: a model cannot be scored on a data set.
        IntegrityError: a model's files are not those that were registered.
    """
    models = [candidate, *(load_version(each) for each in (rivals.champion, rivals.best) if each is not None)]

    def contest(reference: str, split: str, measure: Measure, count: int = 2) -> Contest:
        scored: dict[str, Evaluation] = {}
        for each in models[:count]:
            if each.digest not in scored:
                say(f"scoring {each.uri} on {reference}, split {split}")
                scored[each.digest] = _evaluate(each, data.lake, reference, split, measure)
        found = [scored[each.digest] for each in models[:count]]
        by = {By.LANGUAGE, *(each.by for each in policy.groups)} if reference == data.target else ()
        groups = {str(each): _groups(data.lake, reference, split, each) for each in by}
        return contest_of(reference, split, found, measure, attempt=rivals.attempt, groups=groups)

    own = contest(data.target, data.split, policy.measure, count=len(models))
    guards = {
        guard.dataset: contest(*data.guards[guard.dataset], guard.measure)
        for guard in (policy.guards if rivals.champion is not None else ())
    }
    decision = decide(own, policy, guards=guards, latest=data.latest, approvals=approvals, preference=rivals.preference)
    if any(chose_epoch(candidate.model.card, each) for each in (own, *guards.values())):
        decision = refuse(decision, "held out", NOT_HELD_OUT)
    return decision


def _evaluate(model: LoadedModel, lake: Lake, reference: str, split: str, measure: Measure) -> Evaluation:
    try:
        return evaluate_model(model.model, lake, reference, split, with_pairs=measure.is_of_retrieval)
    except UsageError as problem:
        raise UsageError(f"{model.uri}: {problem}") from problem


def _groups(lake: Lake, reference: str, split: str, by: By) -> dict[str, str]:
    """Return document id -> language, or source, of a split."""
    manifest, folder = read_manifest(lake, reference)
    column = "provenance" if by is By.SOURCE else str(by)
    rows = (
        row
        for documents, _ in split_parts(manifest, split)
        for row in read_part(folder, documents, ["id", column]).to_pylist()
    )
    return {row["id"]: row[column]["source"] if by is By.SOURCE else row[column] for row in rows}


def chose_epoch(model: ModelCard, contest: Contest) -> bool:
    """Return whether a model's epoch was chosen by what it is judged by: on the validation split of its own data set.

    By links, where the loss of its objective reads them; by ranks, where retrieval decides. Another version of the data
    set has the same documents in that split.
    """
    is_own = contest.dataset.partition("@")[0] == model.data.reference.partition("@")[0]
    by_links = bool(model.config.needs.links) and model.config.training.select is Select.LOSS
    by_ranks = contest.measure.is_of_retrieval and model.config.training.select in (
        Select.RETRIEVAL,
        Select.MEDIAN_RANK,
    )
    return is_own and contest.split == Split.VAL and (by_links or by_ranks)


def gate_split(lake: Lake, reference: str, named: str = "") -> str:
    """Return the split of NAME@VERSION to be judged on; a policy may name it."""
    return named or (GATE_SPLIT if GATE_SPLIT in read_manifest(lake, reference)[0].splits else Split.VAL.value)
