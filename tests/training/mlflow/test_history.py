"""Who was champion when, why and on which data; and a promotion that waits for a person."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import mlflow
import pytest
from registries import Register
from typer.testing import CliRunner, Result

from orchestration.cli import app
from schemas.messages import ConfigError, GateError, NotFoundError, UsageError
from training.mlflow.champions import record_of
from training.mlflow.copying import copy_version
from training.mlflow.policy import Policy
from training.mlflow.promotion import approve, promote, rollback
from training.mlflow.runs import connect
from training.promotions.proof import championships


def test_every_champion_is_told_with_when_why_and_on_which_data(
    client: mlflow.MlflowClient, register_model: Register, trained: Path
) -> None:
    with pytest.raises(NotFoundError, match="no model 'linker'"):
        record_of(client, "linker")
    versions = [register_model(trained) for _ in range(2)]
    assert championships(record_of(client, "linker")) == []
    decisions = [promote(client, "linker", version, say=print).decision for version in versions]
    rollback(client, "linker")
    client.delete_model_version("linker", "2")

    found = championships(record_of(client, "linker"))
    assert [(each["version"], each["replaced"], each["by"]) for each in found] == [
        ("1", "", "promotion"),
        ("2", "1", "promotion"),
        ("1", "2", "rollback"),
    ]
    assert [each["until"] for each in found] == [found[1]["since"], found[2]["since"], ""]
    now = datetime.now(UTC)
    assert all(now - timedelta(hours=1) < datetime.fromisoformat(each["since"]) <= now for each in found)
    assert [each["trained_on"] for each in found] == ["synthetic@v1"] * 3  # of a deleted version, too
    assert [(each["judged_on"], each["split"], each["documents"]) for each in found] == [
        ("synthetic@v1", "val", 30),
        ("synthetic@v1", "val", 30),
        ("", "", 0),
    ]
    assert [each["reasons"] for each in found] == [*(list(decision.reasons) for decision in decisions), []]

    command = ["promotions", "linker", "--json", "--tracking-uri", client.tracking_uri]
    shown = CliRunner().invoke(app, command, catch_exceptions=False).output.splitlines()
    assert [each["reasons"] for each in json.loads(shown[-1])["promotions"]] == [each["reasons"] for each in found]
    assert shown[0].split() == ["since", "version", "replaced", "by", "judged", "on", "approved", "by", "signed", "by"]
    assert shown[1].split() == [found[0]["since"], "1", "-", "promotion", "synthetic@v1", "-", "-"]


def test_a_promotion_waits_for_the_person_that_the_policy_asks_for(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, empty_store: str
) -> None:
    version, policy = register_model(trained), Policy(approval=True, approvers=("Ann", "Bo"))
    waiting = promote(client, "linker", version, policy=policy, say=print)
    assert waiting.decision.reasons[-1] == "waits for approval by Ann or Bo (multilink approve)"
    assert waiting.to_json()["is_waiting"] and not waiting.decision.is_promoted
    assert "champion" not in client.get_registered_model("linker").aliases

    for nobody in (" ", "Ann:1a2b"):
        with pytest.raises(UsageError, match="expected the name of a person"):
            approve(client, "linker", version, by=nobody)
    for _ in range(2):
        approve(client, "linker", "challenger", by="Eve")
    assert len(record_of(client, "linker").statements) == 2  # the decision that waits, and one approval
    refused = promote(client, "linker", version, policy=policy, say=print).decision
    assert refused.reasons[-1].endswith("; Eve approved it and is not one of them") and refused.is_waiting

    command = ["approve", "--model", "linker", "--version", version, "--by", "Ann"]
    done = CliRunner().invoke(app, [*command, "--tracking-uri", client.tracking_uri], catch_exceptions=False)
    unsigned = "the record of promotions is not signed: it proves nothing; make a key with: multilink key"
    assert done.stdout == f"models:/linker/{version} is approved by Ann\n{unsigned}\n"
    promoted = promote(client, "linker", version, policy=policy, say=print).decision
    assert promoted.is_promoted and promoted.reasons[-1] == "approved by Ann"
    assert [each["approved_by"] for each in championships(record_of(client, "linker"))] == ["Ann"]

    elsewhere = connect(empty_store)
    copied, _ = copy_version(client.tracking_uri, "linker", version, to=elsewhere.tracking_uri, say=print)
    assert not record_of(elsewhere, "linker").approvals(copied.version)  # approved there, not here


def test_promote_by_a_policy_roll_back_and_copy(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, empty_store: str, tmp_path: Path
) -> None:
    def command(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--tracking-uri", client.tracking_uri, "--json"])

    def summary(result: Result) -> dict[str, object]:
        return dict(json.loads(result.stdout.splitlines()[-1]))

    for _ in range(2):
        register_model(trained)
    policy = tmp_path / "policy.toml"
    chosen = ("promote", "--model", "linker", "--policy", str(policy), "--version")

    policy.write_text("[minimum]\nprecision_at_5 = 100\n")
    refused = command(*chosen, "1")
    assert isinstance(refused.exception, GateError)
    assert "models:/linker/1 is not the champion" in refused.stdout
    (unmet,) = (line for line in refused.stdout.splitlines() if line.startswith("  NOT MET"))
    assert "p@5" in unmet and "does not reach the minimum of 100" in unmet
    assert str(refused.exception) == "models:/linker/1 was not promoted; not met: minimum precision_at_5"

    policy.write_text("[minimum]\nauc = 60\n")
    for version in ("1", "challenger"):
        assert summary(command(*chosen, version))["is_promoted"] is True
    policy.write_text("[minimum]\nacu = 60\n")
    assert isinstance(command(*chosen, "1").exception, ConfigError)

    other_champion = command("rollback", "--model", "linker", "--from", "1").exception
    assert isinstance(other_champion, GateError) and "expected version 1 as champion, found 2" in str(other_champion)
    back = command("rollback", "--model", "linker", "--from", "2")
    assert back.stdout.startswith("models:/linker/1 is the champion again, in place of version 2\n")
    assert summary(back) == {"model": "linker", "version": "1", "champion_before": "2"}
    assert isinstance(command("rollback", "--model", "linker").exception, GateError)

    copy = ("copy", "--model", "linker", "--version", "champion", "--to", empty_store, "--as", "live")
    copied = summary(command(*copy))
    assert (copied["model"], copied["version"], copied["is_new"]) == ("live", "1", True)
    again = command(*copy)
    assert summary(again)["is_new"] is False and re.match(
        r"models:/live/1 was copied from \S+ models:/linker/1 before\n", again.stdout
    )
