import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import mlflow
import numpy as np
import pytest
from registries import Register, aliases_of
from typer.testing import CliRunner

from orchestration.cli import app
from schemas.configs import resolve
from schemas.documents import Provenance, Split
from schemas.lake import Lake
from schemas.messages import GateError, IntegrityError, NotFoundError, UsageError
from schemas.overrides import override
from training.evaluation.evaluate import Evaluation
from training.evaluation.models import evaluate_model
from training.mlflow import judging
from training.mlflow.champions import append, record_of
from training.mlflow.gate import Contest
from training.mlflow.judging import chose_epoch
from training.mlflow.policy import By, Groups, Guard, Measure, Minimum, Policy
from training.mlflow.promotion import Promotion, count_look, promote, rollback
from training.mlflow.registry import find_version
from training.model import LinkModel
from training.promotions.keys import make_key
from training.promotions.proof import championships
from training.promotions.record import CHANGED, JUDGED, TAINTED
from training.recipes import RECIPES


def _stored(client: mlflow.MlflowClient, version: str) -> dict[str, object]:
    return dict(record_of(client, "linker").about(version, CHANGED, JUDGED)[-1].decision)


def test_first_champion_then_an_equal_one_and_a_worse_one(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, untrained: Path
) -> None:
    first, second, bad = register_model(trained), register_model(trained), register_model(untrained)
    lines: list[str] = []
    assert promote(client, "linker", first, say=lines.append).decision.is_promoted
    assert _stored(client, first)["is_promoted"] is True
    assert lines == ["scoring models:/linker/1 on synthetic@v1, split val"]

    assert promote(client, "linker", second, say=lines.append).decision.is_promoted
    assert aliases_of(client) == {"champion": second, "previous_champion": first, "challenger": bad}

    assert not promote(client, "linker", "challenger", say=print).decision.is_promoted
    assert aliases_of(client)["champion"] == second
    stored = _stored(client, bad)
    assert stored["is_promoted"] is False and stored["champion_before"] == second
    assert "worse than the champion" in str(stored["reasons"])


def test_mistakes_are_named(client: mlflow.MlflowClient, registered: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no data set 'synthetic'"):
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
    assert "the champion changed from version 1 to version 3 while this one was judged" in late.decision.reasons[-1]
    assert aliases_of(client) == {"champion": "3", "previous_champion": "1", "challenger": "3"}
    stored = _stored(client, "2")
    assert stored["is_promoted"] is False and stored["reasons"] == list(late.decision.reasons)
    assert promote(client, "linker", "2", say=print).decision.is_promoted


def test_the_policy_decides_on_minima_guards_and_the_latest_version(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, tmp_path: Path
) -> None:
    made = lakes.splits(val=30)
    lake = lakes.write_lake(tmp_path / "lake", made)
    lakes.write_lake(tmp_path / "lake", made, version="v2")
    for _ in range(2):
        register_model(trained)
    stale = promote(client, "linker", "1", lake=lake, say=print)
    assert stale.decision.dataset == "synthetic@v1" and not stale.decision.is_promoted
    assert stale.decision.reasons[-1] == "scored on synthetic@v1, but the latest version is synthetic@v2"
    assert promote(client, "linker", "1", lake=lake, dataset="synthetic", say=print).decision.dataset == "synthetic@v2"
    assert aliases_of(client)["champion"] == "1"

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
    assert len(lines) == 2 and aliases_of(client)["champion"] == "1"  # the same files are scored once
    absent = Policy(guards=(Guard(dataset="rqa"),))
    with pytest.raises(NotFoundError, match="no data set 'rqa'"):
        promote(client, "linker", "2", lake=lake, policy=absent, say=print)


def test_groups_are_told_apart_by_what_documents_say_of_themselves(
    client: mlflow.MlflowClient,
    register_model: Register,
    trained: Path,
    other_files: Callable[[], Path],
    tmp_path: Path,
) -> None:
    made = lakes.make_documents(Split.VAL, 30, lakes.World())
    documents = tuple(
        replace(each, language="de" if number < 10 else "en", provenance=Provenance("ab"[number % 2], each.id))
        for number, each in enumerate(made.documents)
    )
    lake = lakes.write_lake(tmp_path / "lake", {Split.VAL: replace(made, documents=documents)})
    for folder in (trained, other_files()):
        register_model(folder)
    promote(client, "linker", "1", lake=lake, say=print)
    policy = Policy(groups=(Groups(by=By.SOURCE),))
    found = promote(client, "linker", "2", lake=lake, policy=policy, is_dry_run=True, say=print).decision
    sizes = {"language=de": 10, "language=en": 20, "source=a": 15, "source=b": 15}
    assert {each.group: each.documents for each in found.differences} == sizes
    assert {"group source=a, champion", "group source=b, champion"} <= {check.name for check in found.checks}


def test_a_chain_of_champions_is_held_to_the_best_of_them(
    client: mlflow.MlflowClient,
    register_model: Register,
    other_files: Callable[[], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    means = {"1": 80.0, "2": 79.6, "3": 78.0, "4": 79.7, "5": 81.0}
    for _ in means:
        register_model(other_files())
    order: list[float] = []

    def evaluate_at(*arguments: Any, **named: Any) -> Evaluation:
        """Of 2,000 documents, whose scores lie closely about the mean that is next."""
        found, mean = evaluate_model(*arguments, **named), order.pop(0)
        table = np.array([(mean + 0.1 * (number % 3), 50, 50) for number in range(2000)])
        own = replace(found.scores, documents=np.arange(2000), table=table)
        return replace(found, ids=tuple(f"d{number}" for number in range(2000)), scores=own)

    def judge(version: str, *rivals: str, is_dry_run: bool = False) -> Promotion:
        order[:] = [means[version], *(means[rival] for rival in rivals)]
        judged = promote(client, "linker", version, is_dry_run=is_dry_run, say=print)
        assert not order  # each was scored once
        return judged

    monkeypatch.setattr(judging, "evaluate_model", evaluate_at)
    assert judge("1").to_json()["best"] == "1"
    second = judge("2", "1")
    assert second.decision.is_promoted and (second.best, second.to_json()["best"]) == ("1", "1")
    for _ in range(2):  # again, with the same documents: no further chance
        third = judge("3", "2", "1")
        assert [check.name for check in third.decision.checks if not check.is_passed] == ["champion", "best champion"]
        assert third.decision.attempt == 2 and aliases_of(client)["champion"] == "2"
    assert judge("4", "2", "1", is_dry_run=True).decision.attempt == 3
    client.delete_model_version("linker", "3")  # it was judged all the same
    fourth = judge("4", "2", "1")
    assert fourth.decision.is_promoted and fourth.decision.attempt == 3
    fifth = judge("5", "4", "1")
    assert fifth.decision.is_promoted and fifth.decision.attempt == 4 and fifth.to_json()["best"] == "5"
    assert record_of(client, "linker").attempt("6", "synthetic@v1", "val") == 1  # of the new best champion
    rollback(client, "linker")
    record = record_of(client, "linker")
    assert (record.champion, record.best) == ("4", "1")  # as before the fifth
    assert record.attempt("6", "synthetic@v1", "val") == 5


def test_documents_that_chose_an_epoch_judge_no_candidate(
    client: mlflow.MlflowClient,
    registered: str,
    register_model: Register,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = LinkModel.load(trained).card
    links, select = "objective=supervised", "training.select="
    for settings, split, measure, is_chosen in (
        ([links], "val", Measure.AUC, True),
        ([links], "gate", Measure.AUC, False),
        ([links, select + "last"], "val", Measure.AUC, False),
        ([], "val", Measure.AUC, False),  # by a loss that reads no links
        ([select + "retrieval"], "val", Measure.AUC, False),  # by ranks, and judged by links
        ([select + "retrieval"], "val", Measure.RECIPROCAL_RANK, True),
        ([select + "median-rank"], "val", Measure.RECIPROCAL_RANK, True),
        ([select + "median-rank"], "test", Measure.RECIPROCAL_RANK, False),
    ):
        model = replace(card, config=override(RECIPES["hessel-2019"](), settings))
        for dataset in ("synthetic@v1", "synthetic@v2", "other@v1"):  # the target, or a guard
            contest = Contest(dataset=dataset, split=split, candidate={}, measure=measure)
            assert chose_epoch(model, contest) is (is_chosen and dataset != "other@v1"), (settings, dataset)
    monkeypatch.setattr(judging, "chose_epoch", lambda model, contest: contest.split == "val")
    refused = promote(client, "linker", "1", is_dry_run=True, say=print).decision
    assert [check.name for check in refused.checks if not check.is_passed] == ["held out"]
    assert "its epoch was chosen by scores on the validation split" in refused.reasons[-1]
    made = lakes.make_documents(Split.VAL, 30, lakes.World())
    lake = lakes.write_lake(tmp_path / "lake", {"gate": made, "val": made})
    assert promote(client, "linker", "1", lake=lake, say=print).decision.is_promoted
    policy = Policy(split="val", guards=(Guard(dataset="synthetic"),))  # which is judged on its split `gate`
    second = promote(client, "linker", register_model(trained), lake=lake, policy=policy, is_dry_run=True, say=print)
    assert [check.name for check in second.decision.checks if not check.is_passed] == ["held out"]


def test_a_key_that_is_made_later_takes_the_record_over_where_somebody_says_so(
    client: mlflow.MlflowClient,
    register_model: Register,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register_model(trained)
    promote(client, "linker", "1", say=print)
    for name in ("first", "second"):
        make_key(tmp_path / f"{name}.pem")
        monkeypatch.setenv("MULTILINK_KEY", str(tmp_path / f"{name}.pem"))
        with pytest.raises(IntegrityError, match=r"00000[12]\.json: expected a trusted key's signature"):
            promote(client, "linker", "champion", say=print)
        command = ["promotions", "linker", "--adopt", "--tracking-uri", client.tracking_uri]
        assert "adopted" in CliRunner().invoke(app, command, catch_exceptions=False).output
        assert promote(client, "linker", "1", say=print).decision.reasons == ("it is the champion already",)
    record = record_of(client, "linker")
    assert record.champions == ("1",) and record.best == "1" and len(record.statements) == 3
    assert [each["by"] for each in championships(record)] == ["promotion", "adopted", "adopted"]
    assert {each["signed_by"] for each in championships(record)} == {record.statements[-1].signers}


def test_a_cell_of_a_sweep_counts_as_all_of_its_cells(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, other_files: Callable[[], Path]
) -> None:
    for folder in (trained, other_files()):
        register_model(folder)
    promote(client, "linker", "1", say=print)
    cell = find_version(client, "linker", "2")
    experiment = client.get_run(str(cell.run_id)).info.experiment_id
    runs = [str(cell.run_id), *(client.create_run(experiment).info.run_id for _ in range(4))]
    for run in runs[:4]:
        client.set_tag(run, "mlflow.parentRunId", runs[4])
    judged = promote(client, "linker", "2", is_dry_run=True, say=print)
    assert judged.decision.attempt == judged.cells == 4 and judged.study == f"sweep {runs[4]}"


def test_a_version_that_was_scored_on_the_documents_of_the_gate_counts_as_a_candidate(
    client: mlflow.MlflowClient,
    register_model: Register,
    trained: Path,
    other_files: Callable[[], Path],
    registry_lake: Lake,
) -> None:
    def look(version: str, split: str = "val") -> int:
        assert count_look(client, find_version(client, "linker", version), registry_lake, "synthetic@v1", split) is None
        return len(record_of(client, "linker").chain)

    for folder in (trained, other_files(), other_files()):
        register_model(folder)
    assert look("2") == 0  # beside no champion
    promote(client, "linker", "1", say=print)
    assert [look("2", "test"), look("1"), look("2"), look("2")] == [1, 1, 2, 2]
    record = record_of(client, "linker")
    assert record.attempt("3", "synthetic@v1", "val") == 2 and record.attempt("2", "synthetic@v1", "val") == 1
    assert not record.about("2", JUDGED)


def test_what_is_tainted_cannot_be_champion_again_and_is_passed_over_on_the_way_back(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, registry_lake: Lake
) -> None:
    for version in ("1", "2", "3"):
        register_model(trained)
        promote(client, "linker", version, say=print)
    taken = {"dataset": "synthetic@v1", "documents": 1, "images": 2}
    append(client, record_of(client, "linker"), find_version(client, "linker", "2"), TAINTED, taken)
    assert rollback(client, "linker")[0].version == "1" and record_of(client, "linker").champions == ("1",)
    for is_dry_run in (True, False):
        decision = promote(client, "linker", "2", is_dry_run=is_dry_run, say=print).decision
        (unmet,) = (check for check in decision.checks if not check.is_passed)
        assert unmet.name == "taint" and "trained on synthetic@v1, out of which 1 documents and 2" in unmet.reason
    append(client, record_of(client, "linker"), find_version(client, "linker", "1"), TAINTED, taken)
    assert promote(client, "linker", "3", say=print).decision.is_promoted
    with pytest.raises(GateError, match="no champion to go back to: the earlier ones were deleted, tainted or never"):
        rollback(client, "linker")


def test_a_name_with_blanks_and_quotation_marks_is_asked_for_and_advised(
    client: mlflow.MlflowClient, registered: str, registry_lake: Lake, tmp_path: Path
) -> None:
    """What a command advises is about the registry that was named, and can be pasted."""
    name = "my model's"
    client.rename_registered_model("linker", name)
    (tmp_path / "policy.toml").write_text("approval = true", encoding="utf-8")
    about = ["--model", name, "--version", "1", "--policy", str(tmp_path / "policy.toml")]
    waiting = CliRunner().invoke(app, ["promote", *about, "--tracking-uri", client.tracking_uri])
    words = shlex.split(waiting.stdout.partition("next: multilink ")[2].splitlines()[0])
    assert words[-2:] == ["--tracking-uri", client.tracking_uri]
    CliRunner().invoke(app, words, catch_exceptions=False)
    assert [each.by for each in record_of(client, name).approvals("1")] == ["YOUR_NAME"]
    registry_lake.promotions(name).remove()  # the next test has a registry of its own


def test_a_champion_is_judged_again_by_a_changed_policy_which_is_in_force_then(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, other_files: Callable[[], Path]
) -> None:
    for folder in (trained, trained, other_files()):
        register_model(folder)
    strict, refusing = Policy(forget_within_days=0, groups=(Groups(by=By.SOURCE),)), Policy(min_documents=1000)
    for version, policy in (("1", Policy()), ("2", Policy()), ("2", strict), ("2", strict), ("champion", refusing)):
        promote(client, "linker", version, policy=policy, say=print)
    record = record_of(client, "linker")
    assert (len(record.changes), record.champions, record.promotion("2").policy) == (3, ("2", "1"), resolve(strict))
    assert record.attempt("3", "synthetic@v1", "val") == 2  # none for the champion itself
    assert rollback(client, "linker")[0].version == "1"
    promote(client, "linker", "1", say=print)  # so that its policy is in force in place of the second one's
    assert len(record_of(client, "linker").changes) == 5 and record_of(client, "linker").best == "1"


def test_the_test_split_decides_nothing_and_a_split_of_its_own_is_preferred(
    client: mlflow.MlflowClient, registered: str, tmp_path: Path
) -> None:
    val, test = (lakes.make_documents(split, 30, lakes.World()) for split in (Split.VAL, Split.TEST))
    for name, splits, judged_on in (
        ("val", {"val": val, "test": lakes.with_other_links(test)}, "val"),
        ("gate", {"gate": val, "val": lakes.with_other_links(test), "test": lakes.with_other_links(test)}, "gate"),
    ):
        lake = lakes.write_lake(tmp_path / name, splits)
        found = promote(client, "linker", "1", lake=lake, is_dry_run=True, say=print)
        assert found.decision.is_promoted and found.decision.split == judged_on
    lake = lakes.write_lake(tmp_path / "none", {"test": test})
    with pytest.raises(UsageError, match="models:/linker/1: synthetic@v1 has no split 'val'"):
        promote(client, "linker", "1", lake=lake, say=print)
