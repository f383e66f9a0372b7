"""The sensors' rules, as pure functions from a state to requests.

    a sound new version of a data set   -> training of each objective configured for it
    a challenger without a decision     -> its evaluation and promotion
    a champion that has not linked and indexed the newest version -> linking, indexing

A request's key names its work and the run that last made its data set, so that Dagster grants it once for each time
that the data set is made: what failed for good is requested again after the next rebuild, which may give the same
version. While a run of a data set is unfinished, nothing is requested for it: the run may be doing just that. The state
is read in `dagster/definitions.py`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestration.config import NOSTRUCT

# What is made of a model.
TRAINED, EVALUATION, PROMOTION, LINKS, INDEX = "trained_model", "evaluation", "promotion", "links", "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """The models of one data set with one objective, by the registry.

    Attributes:
        objective: name of the objective.
        name: registered model.
        trained_on: data set versions that it has a model of.
        challenger: version with that alias, or None.
        challenger_data: data set version the challenger was trained on.
        is_judged: whether a decision on the challenger's promotion is recorded, and waits for no approval given since.
        approved_by: who approved the challenger.
        champion: version with that alias, or None.
        is_applied: whether the champion's links and index of the newest data set version are there.
    """

    objective: str
    name: str
    trained_on: frozenset[str] = frozenset()
    challenger: str | None = None
    challenger_data: str | None = None
    is_judged: bool = False
    approved_by: str = ""
    champion: str | None = None
    is_applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetState:
    """One data set and its models.

    Attributes:
        name: data set.
        version: the version made last, or None.
        made_in: the run that made it, or found it to be there already.
        is_sound: whether all its checks passed.
        is_busy: whether a run of this data set is unfinished.
        models: one for each objective configured for it.
        problem: why the state cannot be read; nothing is requested then.
    """

    name: str
    version: str | None = None
    made_in: str = ""
    is_sound: bool = False
    is_busy: bool = False
    models: tuple[ModelState, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run to be started.

    Attributes:
        key: Dagster grants a key once.
        dataset: its partition.
        objective: whose assets.
        kinds: the assets.
        version: data set version it is about.
    """

    key: str
    dataset: str
    objective: str
    kinds: tuple[str, ...]
    version: str


def decide_training(datasets: Sequence[DatasetState]) -> list[Request]:
    """Return a training for each configured objective that has no model of the newest sound version."""
    return [
        _request(f"train:{data.name}@{data.version}:{model.objective}:{data.made_in}", data, model, TRAINED)
        for data, model in _ready(datasets)
        if data.version not in model.trained_on
    ]


def decide_promotion(datasets: Sequence[DatasetState]) -> list[Request]:
    """Return an evaluation and promotion for each unjudged challenger of the newest sound version, but NoStruct.

    A challenger is compared with NoStruct: where that is configured, it has to be trained on the version first.
    """
    return [
        _request(
            ":".join(filter(None, (f"promote:{model.name}/{model.challenger}", data.made_in, model.approved_by))),
            data,
            model,
            EVALUATION,
            PROMOTION,
        )
        for data, model in _ready(datasets)
        if model.objective != NOSTRUCT
        and model.challenger is not None
        and model.challenger_data == data.version
        and not model.is_judged
        and all(data.version in each.trained_on for each in data.models if each.objective == NOSTRUCT)
    ]


def decide_linking(datasets: Sequence[DatasetState]) -> list[Request]:
    """Return a linking and indexing of the newest sound version for each champion that has not done both.

    A version is linked once its own model is trained and judged: the champion may be about to change until then.
    """
    return [
        _request(
            f"link:{data.name}@{data.version}:{model.name}/{model.champion}:{data.made_in}", data, model, LINKS, INDEX
        )
        for data, model in _ready(datasets)
        if model.objective != NOSTRUCT
        and model.champion is not None
        and not model.is_applied
        and data.version in model.trained_on
        and model.is_judged
    ]


def _request(key: str, data: DatasetState, model: ModelState, *kinds: str) -> Request:
    return Request(key=key, dataset=data.name, objective=model.objective, kinds=kinds, version=data.version or "")


def _ready(datasets: Sequence[DatasetState]) -> Iterator[tuple[DatasetState, ModelState]]:
    """Yield the models of the data sets that have a sound version and no unfinished run."""
    ready = (data for data in datasets if data.version is not None and data.is_sound and not data.is_busy)
    yield from ((data, model) for data in ready for model in data.models)
