"""The commands of the registry as a user types them, in this process."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
from registries import Register
from typer.testing import CliRunner, Result

from orchestration.cli import app
from schemas.errors import ConfigError, GateError

Run = Callable[..., Result]


@pytest.fixture
def command(client: mlflow.MlflowClient) -> Run:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--tracking-uri", client.tracking_uri, "--json"])

    return run


def _summary(result: Result) -> dict[str, object]:
    return dict(json.loads(result.stdout.splitlines()[-1]))


def test_promote_by_a_policy_roll_back_and_copy(
    command: Run, register_model: Register, trained: Path, template: Path, tmp_path: Path
) -> None:
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
        assert _summary(command(*chosen, version))["is_promoted"] is True
    policy.write_text("[minimum]\nacu = 60\n")
    assert isinstance(command(*chosen, "1").exception, ConfigError)

    other_champion = command("rollback", "--model", "linker", "--from", "1").exception
    assert isinstance(other_champion, GateError) and "expected version 1 as champion, found 2" in str(other_champion)
    back = command("rollback", "--model", "linker", "--from", "2")
    assert back.stdout.startswith("models:/linker/1 is the champion again, in place of version 2\n")
    assert _summary(back) == {"model": "linker", "version": "1", "champion_before": "2"}
    assert isinstance(command("rollback", "--model", "linker").exception, GateError)

    other = tmp_path / "production.db"
    other.write_bytes(template.read_bytes())
    copy = ("copy", "--model", "linker", "--version", "champion", "--to", f"sqlite:///{other}", "--as", "live")
    copied = _summary(command(*copy))
    assert (copied["model"], copied["version"], copied["is_new"]) == ("live", "1", True)
    again = command(*copy)
    assert _summary(again)["is_new"] is False and re.match(
        r"models:/live/1 was copied from \S+ models:/linker/1 before\n", again.stdout
    )
