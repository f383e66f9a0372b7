"""Who is champion when several want to be, or one dies on the way: a real registry, versions without content."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.exceptions import MlflowException
from registries import Registry, aliases_of, change_champion

from schemas.lake import Folder, Lake
from schemas.messages import BuildError, GateError, IntegrityError, UsageError
from training.mlflow import champions
from training.mlflow.champions import adopt, align, append, record_of
from training.mlflow.promotion import rollback
from training.mlflow.registry import find_version, model_names, registered
from training.promotions.record import COUNT_TAG, TAINTED, Registered

WRITES = ("set_registered_model_tag", "set_registered_model_alias", "set_model_version_tag")


class Killed(BaseException):
    """The process is no more."""


def _die_at(monkeypatch: pytest.MonkeyPatch, client: mlflow.MlflowClient, n: int, *, is_written: bool) -> None:
    """Let this process die at the n-th write, to the registry or the lake, before or after it has taken effect."""
    left = [n]

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not is_written:
                raise Killed
            try:
                return method(*arguments, **named)
            finally:
                if left[0] == 0:
                    raise Killed

        return write

    for name in WRITES:
        monkeypatch.setattr(client, name, dying(getattr(client, name)))
    monkeypatch.setattr(Folder, "add", dying(Folder.add))


def _make_versions(registry: Registry, client: mlflow.MlflowClient, count: int) -> None:
    """Make the registered model `linker` with versions of a lake."""
    client.create_registered_model("linker")
    for _ in range(count):
        client.create_model_version("linker", str(registry.folder), tags={"lake": str(registry.folder / "lake")})


@pytest.fixture
def linker(registry: Registry, client: mlflow.MlflowClient) -> mlflow.MlflowClient:
    """A registry with four versions of `linker`."""
    registry.after("four versions", lambda: _make_versions(registry, client, 4))
    return client


def _crown(client: mlflow.MlflowClient, version: str) -> bool:
    last = align(client, "linker")
    return change_champion(client, last, (version, *last.champions), decision={"checks": []})


def _step_back(client: mlflow.MlflowClient) -> bool:
    last = record_of(client, "linker")
    return change_champion(client, last, last.champions[1:], decision={})


def test_each_champion_is_remembered_and_rolled_back_to_one_by_one(linker: mlflow.MlflowClient) -> None:
    for version in ("1", "2", "3"):
        assert _crown(linker, version)
    assert aliases_of(linker) == {"champion": "3", "previous_champion": "2"}
    assert _step_back(linker)
    assert aliases_of(linker) == {"champion": "2", "previous_champion": "1"}
    assert _crown(linker, "4")
    assert aliases_of(linker) == {"champion": "4", "previous_champion": "2"}
    for expected in ({"champion": "2", "previous_champion": "1"}, {"champion": "1"}):
        assert _step_back(linker)
        assert aliases_of(linker) == expected
    with pytest.raises(GateError, match="no champion to go back to"):
        rollback(linker, "linker")
    assert model_names(linker) == ["linker"]


def test_a_champion_that_was_deleted_is_missed_and_going_back_is_stated(linker: mlflow.MlflowClient) -> None:
    for version in ("1", "2", "3"):
        assert _crown(linker, version)
    for version in ("2", "3"):
        linker.delete_model_version("linker", version)
    for _ in range(2):
        assert align(linker, "linker").champions == ("3", "2", "1") and aliases_of(linker) == {}
    words = r"000003\.json: names models:/linker/3, .* it is not in the registry.* multilink rollback --model linker"
    with pytest.raises(IntegrityError, match=words):
        record_of(linker, "linker").number("champion")
    assert rollback(linker, "linker")[0].version == "1" and len(record_of(linker, "linker").chain) == 4
    assert record_of(linker, "linker").champions == ("1",) and aliases_of(linker) == {"champion": "1"}
    linker.delete_model_version("linker", "1")
    align(linker, "linker")
    with pytest.raises(IntegrityError, match=r"from a backup; .* multilink promotions linker --adopt"):
        record_of(linker, "linker").number("champion")  # no way back is named that there is not
    with pytest.raises(GateError, match="no champion to go back to: no earlier one"):
        rollback(linker, "linker")
    assert adopt(linker, "linker").champions == () and _crown(linker, "4")


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("write", range(1, 5))
def test_a_death_at_any_write_of_the_first_champion(linker: mlflow.MlflowClient, write: int, is_written: bool) -> None:
    with pytest.MonkeyPatch.context() as dying, pytest.raises(Killed):
        _die_at(dying, linker, write, is_written=is_written)
        assert _crown(linker, "1")
    is_committed = (write, is_written) >= (2, True)  # where the chain is, statement, champion, number of statements
    assert align(linker, "linker").champion == ("1" if is_committed else None)
    assert is_committed or _crown(linker, "1")
    assert _crown(linker, "2") and record_of(linker, "linker").champions == ("2", "1")
    assert aliases_of(linker) == {"champion": "2", "previous_champion": "1"}


JUDGED_BY = {"checks": [], "policy": {}, "version": "3", "best": "3", "best_before": "2"}
TAKEN_OUT = {"dataset": "diy@v1", "documents": 1, "images": 2, "why": ""}


def _promote(client: mlflow.MlflowClient, name: str) -> None:
    last = align(client, name)
    if last.champion != "3":
        assert change_champion(client, last, ("3", *last.champions), decision=JUDGED_BY)


def _taint(client: mlflow.MlflowClient, name: str) -> None:
    if record_of(client, name).taint("1") is None:
        append(client, record_of(client, name), find_version(client, name, "1"), TAINTED, TAKEN_OUT)


OPERATIONS: dict[str, Callable[[mlflow.MlflowClient, str], object]] = {
    "promote": _promote,
    "rollback": lambda client, name: rollback(client, name, champion="2"),
    "taint": _taint,
}


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_after_a_death_at_any_step_the_registry_follows_the_record(
    registry: Registry, operation: str, is_written: bool
) -> None:
    """Whoever aligns it next, such as the schedule's sensor, completes it; who repeats the command does it once."""
    client = registry.reset()

    def make_champions() -> None:
        _make_versions(registry, client, 3)
        for version in ("1", "2"):
            assert _crown(client, version)

    registry.after("two champions", make_champions)
    before, run = _kept(client), OPERATIONS[operation]
    run(client, "linker")
    after, died = _kept(client), 0
    for write in range(1, 6):
        registry.reset(("two champions",))
        with pytest.MonkeyPatch.context() as dying:
            _die_at(dying, client, write, is_written=is_written)
            try:
                run(client, "linker")
            except Killed:
                died = write
        if died < write:
            break  # it writes less often: none that comes later could be killed
        is_stated = len(align(client, "linker").chain) == 3
        assert _kept(client) == (after if is_stated else before)
        if not is_stated:
            run(client, "linker")
        assert len(align(client, "linker").chain) == 3 and _kept(client) == after
    assert died >= (1 if is_written else 3)


def _kept(client: mlflow.MlflowClient) -> dict[str, Any]:
    """Return what the registry says of a model, but for where its record is."""
    model = client.get_registered_model("linker")
    tags = {version: client.get_model_version("linker", version).tags for version in ("1", "2", "3")}
    if TAINTED in tags["1"]:
        tags["1"][TAINTED] = json.dumps({**json.loads(tags["1"][TAINTED]), "at": ""})  # each was at another time
    return {"aliases": model.aliases, "count": model.tags.get(COUNT_TAG), "tags": tags}


def test_a_registry_that_cannot_be_written_is_told(
    linker: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise MlflowException("the database is read-only")

    assert _crown(linker, "1")
    last = record_of(linker, "linker")
    monkeypatch.setattr(linker, "set_registered_model_alias", refuse)
    with pytest.raises(BuildError, match="model 'linker': the registry could not be written: the database is read-"):
        change_champion(linker, last, ("2", "1"), decision={})
    assert aliases_of(linker) == {"champion": "1"}


def test_a_version_without_a_lake_is_told(client: mlflow.MlflowClient, tmp_path: Path) -> None:
    client.create_registered_model("linker")
    client.create_model_version("linker", source=str(tmp_path))
    with pytest.raises(UsageError, match="expected a tag with the lake of its data set, found none; give --lake"):
        _crown(client, "1")
    last = record_of(client, "linker")
    assert change_champion(client, last, ("1",), decision={}, lake=Lake.at(str(tmp_path / "lake")))
    assert [path.name for path in (tmp_path / "lake" / "promotions" / "linker").iterdir()] == ["000001.json"]


@pytest.mark.parametrize("name", WRITES[:2])
def test_a_write_that_another_disturbs_is_tried_again(
    linker: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    method, refusals = getattr(linker, name), [MlflowException("UNIQUE constraint failed")]

    def disturbed(*arguments: Any, **named: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return method(*arguments, **named)

    monkeypatch.setattr(linker, name, disturbed)
    assert _crown(linker, "1")
    assert not refusals and aliases_of(linker) == {"champion": "1"}


def test_a_statement_whose_answer_was_lost_counts(linker: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Folder.add
    monkeypatch.setattr(Folder, "add", lambda folder, name, data: add(folder, name, data) and False)
    assert _crown(linker, "1") and _crown(linker, "2")
    assert record_of(linker, "linker").champions == ("2", "1")
    assert len(record_of(linker, "linker").chain) == 2


def test_who_read_the_record_before_it_began_makes_no_champion_but_may_state_a_taint(
    linker: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement costs two readings of the registry: one after it, and one after what follows from it is written."""
    stale, readings = record_of(linker, "linker"), list[str]()

    def counted(client: mlflow.MlflowClient, name: str) -> Registered:
        readings.append(name)
        return registered(client, name)

    assert stale.home is None and _crown(linker, "1")
    assert not change_champion(linker, stale, ("2",), decision={}) and record_of(linker, "linker").champions == ("1",)
    assert append(linker, stale, stale.model.versions["2"], TAINTED, TAKEN_OUT) and record_of(linker, "linker").taint(
        "2"
    )
    last = align(linker, "linker")
    monkeypatch.setattr(champions, "registered", counted)
    assert change_champion(linker, last, ("3", "1"), decision={}) and len(readings) == 2
    assert align(linker, "linker").champion == "3" and len(readings) == 3


def test_a_model_that_was_deleted_and_made_anew_begins_without_a_champion(
    linker: mlflow.MlflowClient, registry: Registry
) -> None:
    for version in ("1", "3"):
        assert _crown(linker, version)
    linker.delete_registered_model("linker")
    _make_versions(registry, linker, 3)  # numbered from 1 again; nobody has judged any
    assert align(linker, "linker").champions == () and aliases_of(linker) == {}
    with pytest.raises(GateError, match="no champion to go back to"):
        rollback(linker, "linker")
    assert _crown(linker, "2") and aliases_of(linker) == {"champion": "2"}
    assert _crown(linker, "3") and record_of(linker, "linker").champions == ("3", "2")
