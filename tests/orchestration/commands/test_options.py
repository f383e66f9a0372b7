"""Options that are checked before anything heavy is imported."""

import inspect
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from orchestration.cli import app
from orchestration.commands import options
from schemas.messages import UsageError
from training.linking.links import LinkOptions
from training.metrics.calibration import Calibration
from training.metrics.relations import RefineConfig


def run(uri: str) -> object:
    app = typer.Typer()

    @app.command()
    def command(tracking: options.Tracking = None) -> None:
        print(tracking)

    done = CliRunner().invoke(app, ["--tracking-uri", uri], env={"MLFLOW_TRACKING_URI": ""})
    return done.exception or done.stdout.strip()


def test_a_server_that_is_away_is_told_at_once_and_refused_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert run(f"{uri}?timeout=60") == f"{uri}?timeout=60"  # what the driver is told is no part of the file's name
    assert run("postgresql://host/mlflow") == "postgresql://host/mlflow"


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        *((name, options.link_settings) for name in ("link", "relink", "serve")),
        ("search", options.refinement),
    ],
)
def test_a_command_has_all_options_of_what_it_does(name: str, shared: Callable[..., object]) -> None:
    own = {each.name for each in get_command(app).get_command(None, name).params}
    assert own >= inspect.signature(shared).parameters.keys()


def test_the_options_of_refinement() -> None:
    assert options.refinement(0.2, 0.5) == RefineConfig(below=0.2, weight=0.5)
    assert options.refinement() is None and options.refinement(0.1) == RefineConfig()
    with pytest.raises(UsageError, match="--refine-weight needs --refine-below"):
        options.refinement(refine_weight=0.5)


def test_the_options_of_links(tmp_path: Path) -> None:
    about = {"dataset": "d@1", "split": "val", "documents": 1, "links": 2, "true_links": 1}
    shape = {"sentences": (1, 9), "images": (1, 9), "slopes": (1.0, 0.0, 0.0), "intercept": 0.0}
    calibration, path = Calibration(**about, **shape), tmp_path / "calibration.json"
    path.write_text(calibration.to_json())
    found = options.link_settings(precision=0.9, calibration=path).options()
    assert found == LinkOptions(precision=0.9, calibration=calibration)
    assert options.link_settings().options() == LinkOptions()
