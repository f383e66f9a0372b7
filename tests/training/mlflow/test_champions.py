"""Who is champion when several want to be, or one dies on the way: a real registry, versions without content."""

import re
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.exceptions import MlflowException

from schemas.errors import BuildError, GateError, NotFoundError
from training.mlflow.champions import align_aliases, append_entry, last_entry
from training.mlflow.promotion import rollback
from training.mlflow.registry import canonical_name, model_names

WRITES = ("create_registered_model", "create_model_version", "set_registered_model_alias")


class Killed(BaseException):
    """The process is no more."""


class DyingClient:
    """A client whose process dies at the n-th write, before or after it has taken effect."""

    def __init__(self, client: mlflow.MlflowClient, n: int, *, is_written: bool) -> None:
        self.client, self.left, self.is_written = client, n, is_written

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        if name not in WRITES:
            return method

        def write(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.is_written:
                raise Killed
            try:
                return method(*arguments, **named)
            finally:
                if self.left == 0:
                    raise Killed

        return write


@pytest.fixture
def linker(client: mlflow.MlflowClient, tmp_path: Path) -> mlflow.MlflowClient:
    """A registry with four versions of `linker`."""
    client.create_registered_model("linker")
    for _ in range(4):
        client.create_model_version("linker", source=str(tmp_path))
    return client


def _aliases(client: mlflow.MlflowClient) -> dict[str, str]:
    return {alias: str(version) for alias, version in client.get_registered_model("linker").aliases.items()}


def _crown(client: mlflow.MlflowClient, version: str) -> bool:
    entry = align_aliases(client, "linker")
    return append_entry(client, "linker", entry, (version, *entry.champions), decision="{}")


def _step_back(client: mlflow.MlflowClient) -> bool:
    entry = last_entry(client, "linker")
    return append_entry(client, "linker", entry, entry.champions[1:], decision="{}")


def test_each_champion_is_remembered_and_rolled_back_to_one_by_one(linker: mlflow.MlflowClient) -> None:
    for version in ("1", "2", "3"):
        assert _crown(linker, version)
    assert _aliases(linker) == {"champion": "3", "previous_champion": "2"}
    assert _step_back(linker)
    assert _aliases(linker) == {"champion": "2", "previous_champion": "1"}
    assert _crown(linker, "4")
    assert _aliases(linker) == {"champion": "4", "previous_champion": "2"}
    for expected in ({"champion": "2", "previous_champion": "1"}, {"champion": "1"}):
        assert _step_back(linker)
        assert _aliases(linker) == expected
    with pytest.raises(GateError, match="no champion to go back to"):
        rollback(linker, "linker")
    assert model_names(linker) == ["linker"]


@pytest.mark.parametrize("spelled", ["multilink-diy-cross", "multilink-diy-intra+cross"])
def test_a_model_is_rolled_back_by_any_spelling_of_its_objective(
    client: mlflow.MlflowClient, tmp_path: Path, spelled: str
) -> None:
    name = canonical_name(spelled)
    client.create_registered_model(name)
    for version in ("1", "2"):
        client.create_model_version(name, source=str(tmp_path))
        entry = align_aliases(client, spelled)
        assert append_entry(client, spelled, entry, (version, *entry.champions), decision="{}")
    restored, replaced = rollback(client, spelled)
    assert (restored.uri, replaced) == (f"models:/{name}/1", "2")
    assert client.get_registered_model(name).aliases == {"champion": 1}
    assert last_entry(client, spelled).champion == "1"
    with pytest.raises(GateError, match=re.escape(f"model '{name}' has no champion to go back to")):
        rollback(client, spelled)
    assert model_names(client) == [name]


def test_of_two_that_saw_the_same_champion_the_second_loses(linker: mlflow.MlflowClient) -> None:
    assert _crown(linker, "1")
    seen = last_entry(linker, "linker")
    assert append_entry(linker, "linker", seen, ("2", *seen.champions), decision='{"by": "first"}')
    assert not append_entry(linker, "linker", seen, ("3", *seen.champions), decision='{"by": "second"}')
    entry = last_entry(linker, "linker")
    assert (entry.champion, entry.previous, entry.decision) == ("2", "1", '{"by": "first"}')
    assert _aliases(linker) == {"champion": "2", "previous_champion": "1"}
    assert _crown(linker, "3")  # whoever looks again may
    assert last_entry(linker, "linker").champions == ("3", "2", "1")


def test_the_aliases_of_an_older_registry_are_where_the_line_begins(linker: mlflow.MlflowClient) -> None:
    linker.set_registered_model_alias("linker", "champion", "2")
    linker.set_registered_model_alias("linker", "previous_champion", "1")
    assert align_aliases(linker, "linker").champions == ("2", "1")
    assert _crown(linker, "3")
    assert last_entry(linker, "linker").champions == ("3", "2", "1")


def test_an_alias_moved_by_hand_or_by_a_late_process_is_put_right(linker: mlflow.MlflowClient) -> None:
    assert _crown(linker, "1") and _crown(linker, "2")
    linker.set_registered_model_alias("linker", "champion", "1")
    linker.delete_registered_model_alias("linker", "previous_champion")
    align_aliases(linker, "linker")
    assert _aliases(linker) == {"champion": "2", "previous_champion": "1"}


def test_a_deleted_version_is_passed_over(linker: mlflow.MlflowClient) -> None:
    for version in ("1", "2", "3"):
        assert _crown(linker, version)
    linker.delete_model_version("linker", "2")
    align_aliases(linker, "linker")
    assert _aliases(linker) == {"champion": "3", "previous_champion": "1"}


def test_no_such_model(client: mlflow.MlflowClient) -> None:
    with pytest.raises(NotFoundError, match="no model 'linker'"):
        align_aliases(client, "linker")


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("write", range(1, 5))
def test_a_death_at_any_write_leaves_one_champion_and_repeating_completes_it(
    linker: mlflow.MlflowClient, write: int, is_written: bool
) -> None:
    assert _crown(linker, "1")
    dying = DyingClient(linker, write, is_written=is_written)
    with pytest.raises(Killed):
        append_entry(dying, "linker", last_entry(linker, "linker"), ("2", "1"), decision="{}")
    is_last = (write, is_written) == (4, True)
    assert _aliases(linker)["champion"] == ("2" if is_last else "1")
    is_committed = (write, is_written) > (2, False)
    entry = align_aliases(linker, "linker")
    assert entry.champion == ("2" if is_committed else "1")
    assert _aliases(linker)["champion"] == entry.champion
    if not is_committed:
        assert _crown(linker, "2")
    assert last_entry(linker, "linker").champions == ("2", "1")
    assert _aliases(linker) == {"champion": "2", "previous_champion": "1"}


def test_a_registry_that_cannot_be_written_is_told(linker: mlflow.MlflowClient) -> None:
    assert _crown(linker, "1")
    entry = last_entry(linker, "linker")
    linker.delete_model_version("linker", "2")
    with pytest.raises(BuildError, match="model 'linker': the registry could not be written"):
        append_entry(linker, "linker", entry, ("2", "1"), decision="{}")
    assert _aliases(linker) == {"champion": "1"}


def test_of_two_processes_one_wins_each_time(linker: mlflow.MlflowClient, contest: Any) -> None:
    outcomes = contest(linker.tracking_uri, "linker", ["1", "2"], rounds=3)
    assert [sorted(outcome.values()) for outcome in outcomes] == [["lost", "won"]] * 3
    winners = [next(version for version, result in outcome.items() if result == "won") for outcome in outcomes]
    assert last_entry(linker, "linker").champions == tuple(reversed(winners))
    assert _aliases(linker)["champion"] == winners[-1]


@pytest.mark.parametrize("write", [1, 2])
def test_a_write_that_another_disturbs_is_tried_again(
    linker: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    name = WRITES[write]
    method, refusals = getattr(linker, name), [MlflowException("UNIQUE constraint failed")]

    def disturbed(*arguments: Any, **named: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return method(*arguments, **named)

    monkeypatch.setattr(linker, name, disturbed)
    assert _crown(linker, "1")
    assert not refusals and _aliases(linker) == {"champion": "1"}


def test_an_entry_written_twice_counts_once(linker: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    create = linker.create_model_version
    lost = [MlflowException("the answer was lost")]

    def written_but_unanswered(*arguments: Any, **named: Any) -> Any:
        result = create(*arguments, **named)
        if lost:
            raise lost.pop()
        return result

    monkeypatch.setattr(linker, "create_model_version", written_but_unanswered)
    assert _crown(linker, "1")
    assert len(linker.search_model_versions("name = 'linker.champions'")) == 2
    assert last_entry(linker, "linker").champions == ("1",)
    assert _crown(linker, "2") and last_entry(linker, "linker").champions == ("2", "1")


def test_a_model_that_was_deleted_and_made_anew_begins_without_a_champion(
    linker: mlflow.MlflowClient, tmp_path: Path
) -> None:
    for version in ("1", "3"):
        assert _crown(linker, version)
    linker.delete_registered_model("linker")
    linker.create_registered_model("linker")
    for _ in range(3):  # numbered from 1 again; nobody has judged any
        linker.create_model_version("linker", source=str(tmp_path))
    assert align_aliases(linker, "linker").champions == () and _aliases(linker) == {}
    with pytest.raises(GateError, match="no champion to go back to"):
        rollback(linker, "linker")
    assert _crown(linker, "2")
    assert last_entry(linker, "linker").champions == ("2",) and _aliases(linker) == {"champion": "2"}
    assert _crown(linker, "3") and last_entry(linker, "linker").champions == ("3", "2")
