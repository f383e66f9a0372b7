import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import mlflow
import pytest

from schemas.documents import Split
from schemas.errors import GateError, NotFoundError, UsageError
from schemas.lake import Lake
from schemas.overrides import override
from training.evaluation.evaluate import Evaluation
from training.evaluation.models import evaluate_model
from training.metrics.links import LinkScore
from training.mlflow import judging
from training.mlflow.champions import best_champion, last_entry
from training.mlflow.explanation import explained
from training.mlflow.judging import chosen_by_links
from training.mlflow.policy import Guard, Minimum, Policy
from training.mlflow.promotion import Promotion, promote, rollback
from training.mlflow.registry import DECISION_TAG, find_version
from training.recipes import RECIPES

Register = Callable[[Path], str]


def _aliases(client: mlflow.MlflowClient) -> dict[str, str]:
    return {alias: str(version) for alias, version in client.get_registered_model("linker").aliases.items()}


def _stored(client: mlflow.MlflowClient, version: str) -> dict[str, object]:
    """Return the decision as the version's tag and as the run's artefact; they must agree."""
    found = find_version(client, "linker", version)
    text = mlflow.artifacts.load_text(f"runs:/{found.run_id}/promotion/linker-{version}.json")
    assert json.loads(text) == json.loads(found.tags[DECISION_TAG])
    return dict(json.loads(text))


def test_first_champion_then_an_equal_one_and_a_worse_one(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, untrained: Path
) -> None:
    first, second, bad = register_model(trained), register_model(trained), register_model(untrained)
    lines: list[str] = []
    promotion = promote(client, "linker", first, say=lines.append)
    assert promotion.decision.is_promoted and _aliases(client)["champion"] == first
    assert _stored(client, first)["is_promoted"] is True
    assert lines == ["scoring models:/linker/1 on synthetic@v1, split val"]

    assert promote(client, "linker", second, say=lines.append).decision.is_promoted
    assert _aliases(client) == {"champion": second, "previous_champion": first, "challenger": bad}

    refused = promote(client, "linker", "challenger", say=lines.append)
    assert not refused.decision.is_promoted
    assert _aliases(client)["champion"] == second
    stored = _stored(client, bad)
    assert stored["is_promoted"] is False and stored["champion_before"] == second
    assert "worse than the champion" in str(stored["reasons"])


def test_dry_run_decides_but_moves_and_records_nothing(
    client: mlflow.MlflowClient, register_model: Register, trained: Path
) -> None:
    register_model(trained)
    promotion = promote(client, "linker", "1", is_dry_run=True, say=print)
    assert promotion.decision.is_promoted
    assert _aliases(client) == {"challenger": "1"}
    assert DECISION_TAG not in find_version(client, "linker", "1").tags


def test_the_champion_stays_champion(client: mlflow.MlflowClient, register_model: Register, trained: Path) -> None:
    register_model(trained)
    promote(client, "linker", "1", say=print)
    again = promote(client, "linker", "champion", say=print)
    assert again.decision.is_promoted and again.decision.reasons == ("it is the champion already",)
    assert _aliases(client) == {"challenger": "1", "champion": "1"}


def test_a_random_model_is_not_promoted(client: mlflow.MlflowClient, register_model: Register, untrained: Path) -> None:
    register_model(untrained)
    promotion = promote(client, "linker", "1", say=print)
    assert not promotion.decision.is_promoted and "champion" not in _aliases(client)
    assert "not shown to beat random" in promotion.decision.reasons[0]


def test_mistakes_are_named(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, tmp_path: Path
) -> None:
    register_model(trained)
    with pytest.raises(NotFoundError, match="no version '9'"):
        promote(client, "linker", "9", say=print)
    with pytest.raises(NotFoundError, match="give its lake with --lake"):
        promote(client, "linker", "1", lake=Lake.at(str(tmp_path)), say=print)
    client.delete_model_version_tag("linker", "1", "lake")
    with pytest.raises(UsageError, match="give --lake"):
        promote(client, "linker", "1", say=print)


def test_a_champion_crowned_while_another_is_judged_is_not_overruled(
    client: mlflow.MlflowClient, register_model: Register, trained: Path
) -> None:
    for _ in range(3):
        register_model(trained)
    promote(client, "linker", "1", say=print)

    def be_overtaken(line: str) -> None:
        if line.startswith("scoring models:/linker/2"):
            promote(client, "linker", "3", say=print)

    late = promote(client, "linker", "2", say=be_overtaken)
    assert not late.decision.is_promoted
    assert "the champion changed from version 1 to version 3 while this one was judged" in late.decision.reasons[-1]
    assert _aliases(client) == {"champion": "3", "previous_champion": "1", "challenger": "3"}
    stored = _stored(client, "2")
    assert stored["is_promoted"] is False and stored["reasons"] == list(late.decision.reasons)
    assert promote(client, "linker", "2", say=print).decision.is_promoted


def test_a_decision_lost_with_its_process_is_completed(
    client: mlflow.MlflowClient, register_model: Register, trained: Path
) -> None:
    register_model(trained)
    promote(client, "linker", "1", say=print)
    stored = _stored(client, "1")
    client.delete_model_version_tag("linker", "1", DECISION_TAG)
    client.delete_registered_model_alias("linker", "champion")
    assert promote(client, "linker", "1", say=print).decision.reasons == ("it is the champion already",)
    assert _stored(client, "1") == stored
    assert _aliases(client)["champion"] == "1"


def test_rollback_restores_the_previous_champion(
    client: mlflow.MlflowClient, register_model: Register, trained: Path
) -> None:
    for version in (register_model(trained), register_model(trained)):
        promote(client, "linker", version, say=print)
    with pytest.raises(GateError, match="expected version 1 as champion, found 2"):
        rollback(client, "linker", champion="1")
    restored, replaced = rollback(client, "linker", champion="2")
    assert (restored.uri, replaced) == ("models:/linker/1", "2")
    assert _aliases(client) == {"champion": "1", "challenger": "2"}
    with pytest.raises(GateError, match="no champion to go back to"):
        rollback(client, "linker")


def test_the_policy_decides_on_minima_guards_and_the_latest_version(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, lakes: ModuleType, tmp_path: Path
) -> None:
    made = {Split.VAL: lakes.make_documents(Split.VAL, 30, lakes.World())}
    lake = lakes.write_lake(str(tmp_path / "lake"), made)
    lakes.write_lake(str(tmp_path / "lake"), made, version="v2")
    for _ in range(2):
        register_model(trained)
    stale = promote(client, "linker", "1", lake=lake, say=print)
    assert stale.decision.dataset == "synthetic@v1" and not stale.decision.is_promoted
    assert stale.decision.reasons[-1] == "scored on synthetic@v1, but the latest version is synthetic@v2"
    assert promote(client, "linker", "1", lake=lake, dataset="synthetic", say=print).decision.dataset == "synthetic@v2"
    assert _aliases(client)["champion"] == "1"

    policy = Policy(minimum=Minimum(precision_at_5=100), guards=(Guard(dataset="synthetic"),))
    lines: list[str] = []
    strict = promote(client, "linker", "2", lake=lake, dataset="synthetic@v2", policy=policy, say=lines.append)
    assert {check.name: check.is_passed for check in strict.decision.checks} == {
        "random": True,
        "champion": True,
        "documents": True,
        "minimum precision_at_5": False,
        "guard synthetic": True,
        "latest": True,
    }
    assert len(lines) == 4 and _aliases(client)["champion"] == "1"
    absent = Policy(guards=(Guard(dataset="rqa"),))
    with pytest.raises(NotFoundError, match="no data set 'rqa'"):
        promote(client, "linker", "2", lake=lake, policy=absent, say=print)


def test_models_of_two_views_are_compared_on_the_documents_both_could_score(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        register_model(trained)
    promote(client, "linker", "1", say=print)
    kept: list[int] = []

    def evaluate_some(*arguments: Any, **named: Any) -> Evaluation:
        """Of the second model's documents only some have the texts that it reads."""
        found = evaluate_model(*arguments, **named)
        kept.append(len(found.scores) if not kept else count)
        some, scores = slice(kept[-1]), found.scores
        return replace(found, scores=replace(scores, documents=scores.documents[some], table=scores.table[some]))

    for version, count in (("2", 21), ("3", 5)):
        kept.clear()
        monkeypatch.setattr(judging, "evaluate_model", evaluate_some)
        judged = promote(client, "linker", version, say=print)
        assert judged.decision.is_promoted is (count == 21) and judged.decision.documents == count
    assert "5 documents of synthetic@v1, split val, could be scored with both models" in judged.decision.reasons[2]


def test_a_chain_of_champions_is_held_to_the_best_of_them(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    means = {"1": 80.0, "2": 79.4, "3": 78.8, "4": 79.6, "5": 81.0}
    for _ in means:
        register_model(trained)
    order: list[float] = []

    def evaluate_at(*arguments: Any, **named: Any) -> Evaluation:
        """The documents' scores lie closely about the mean that is next."""
        found, mean = evaluate_model(*arguments, **named), order.pop(0)
        scores = tuple(LinkScore(mean + 0.1 * (number % 3), 50, 50) for number in range(len(found.scores)))
        return replace(found, scores=replace(found.scores, scores=scores))

    def judge(version: str, *rivals: str) -> Promotion:
        order[:] = [means[version], *(means[rival] for rival in rivals)]
        judged = promote(client, "linker", version, say=print)
        assert not order  # each was scored once
        return judged

    monkeypatch.setattr(judging, "evaluate_model", evaluate_at)
    assert judge("1").to_json()["best"] == "1"
    second = judge("2", "1")
    assert second.decision.is_promoted and (second.best, second.to_json()["best"]) == ("1", "1")
    third = judge("3", "2", "1")
    assert [check.name for check in third.decision.checks if not check.is_passed] == ["best champion"]
    assert third.decision.attempt == 2 and _aliases(client)["champion"] == "2"
    fourth = judge("4", "2", "1")
    assert fourth.decision.is_promoted and fourth.decision.attempt == 3
    assert "candidate 3 that the best champion meets" in " ".join(explained(fourth.decision))
    fifth = judge("5", "4", "1")
    assert fifth.decision.is_promoted and fifth.to_json()["best"] == "5"
    rollback(client, "linker")
    assert best_champion(client, "linker", last_entry(client, "linker")) == "4"


def test_links_that_chose_an_epoch_judge_no_candidate(
    client: mlflow.MlflowClient,
    register_model: Register,
    trained: Path,
    lakes: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervised = override(RECIPES["hessel-2019"](), ["objective=supervised"])
    assert chosen_by_links(supervised)
    assert not chosen_by_links(RECIPES["hessel-2019"]())
    assert not chosen_by_links(override(supervised, ["training.select=last"]))
    register_model(trained)
    monkeypatch.setattr(judging, "chosen_by_links", lambda config: True)
    refused = promote(client, "linker", "1", is_dry_run=True, say=print).decision
    assert [check.name for check in refused.checks if not check.is_passed] == ["unseen"]
    made = lakes.make_documents(Split.VAL, 30, lakes.World())
    lake = lakes.write_lake(str(tmp_path / "lake"), {"gate": made, "val": made})
    assert promote(client, "linker", "1", lake=lake, is_dry_run=True, say=print).decision.is_promoted


def test_the_test_split_decides_nothing_and_a_split_of_its_own_is_preferred(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, lakes: ModuleType, tmp_path: Path
) -> None:
    register_model(trained)
    val, test = (lakes.make_documents(split, 30, lakes.World()) for split in (Split.VAL, Split.TEST))
    for name, splits, judged_on in (
        ("val", {"val": val, "test": lakes.with_other_links(test)}, "val"),
        ("gate", {"gate": val, "val": lakes.with_other_links(test), "test": lakes.with_other_links(test)}, "gate"),
    ):
        lake = lakes.write_lake(str(tmp_path / name), splits)
        found = promote(client, "linker", "1", lake=lake, is_dry_run=True, say=print)
        assert found.decision.is_promoted and found.decision.split == judged_on
    lake = lakes.write_lake(str(tmp_path / "none"), {"test": test})
    with pytest.raises(UsageError, match="models:/linker/1: synthetic@v1 has no split 'val'"):
        promote(client, "linker", "1", lake=lake, say=print)
