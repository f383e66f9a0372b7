"""Options that are checked before anything heavy is imported."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from orchestration.commands import options
from schemas.errors import UsageError


def run(uri: str) -> object:
    app = typer.Typer()

    @app.command()
    def command(tracking: options.Tracking = None) -> None:
        print(tracking)

    done = CliRunner().invoke(app, ["--tracking-uri", uri], env={"MLFLOW_TRACKING_URI": ""})
    return done.exception or done.stdout.strip()


def test_a_server_that_is_away_is_told_at_once_and_refused_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "SERVER_WAIT_S", 0.1)
    told: list[str] = []
    monkeypatch.setattr(options.Console, "say", lambda _, line: told.append(line))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
        found = run(uri)
    assert isinstance(found, UsageError) and f"{uri}: no server answers there" in str(found)
    assert told[0].startswith(f"{uri} does not answer")


def test_a_server_that_starts_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        monkeypatch.setattr(options.Console, "say", lambda *_: threading.Thread(target=server.listen).start())
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert run(uri) == uri


@pytest.mark.parametrize("uri", ["http://127.0.0.1:port", "http://"])
def test_an_address_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setattr(options, "SERVER_WAIT_S", 0.1)
    monkeypatch.setattr(options.Console, "say", lambda *_: None)
    assert isinstance(run(uri), UsageError)


def test_a_database_is_there_or_is_refused(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert str(run(uri)) == f"--tracking-uri {uri}: no such file"
    (tmp_path / "mlflow.db").touch()
    assert run(uri) == uri
    assert run("postgresql://host/mlflow") == "postgresql://host/mlflow"
