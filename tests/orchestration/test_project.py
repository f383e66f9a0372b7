"""The project file: what `demo` and `up` leave for the commands that come after them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import multilink
from orchestration.project import recall, remember, workspace_key
from schemas.messages import ConfigError, NotFoundError
from training.project import FILE
from training.promotions.keys import key_path, make_key


@pytest.mark.parametrize(
    ("lake", "tracking_uri", "environment", "expected"),
    [
        ("{}/demo/lake", "sqlite:///{}/demo/mlflow.db", {}, ("demo/lake", "sqlite:///demo/mlflow.db")),
        ("s3://bucket/lake", "http://mlflow:5000", {}, ("s3://bucket/lake", "http://mlflow:5000")),
        ("s3://bucket/lake", "http://mlflow:5000", {"MULTILINK_LAKE": "own"}, ("own", "http://mlflow:5000")),
    ],
    ids=["inside, by relative paths", "elsewhere, as they are", "the environment wins"],
)
def test_a_workspace_is_kept(
    tmp_path: Path, lake: str, tracking_uri: str, environment: dict[str, str], expected: tuple[str, str]
) -> None:
    where = {"lake": lake.format(tmp_path), "tracking_uri": tracking_uri.format(tmp_path)}
    remember(tmp_path / "demo", tmp_path, **where, say=print)
    found = dict(environment)
    recall(tmp_path, found)
    assert found == dict(zip(("MULTILINK_LAKE", "MLFLOW_TRACKING_URI"), expected, strict=True))


def test_a_workspace_has_a_key_of_its_own_where_the_user_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("MULTILINK_KEY", "")
    home = tmp_path / "demo"
    own = workspace_key(home)
    assert own == str(home / "key.pem") and Path(own).stat().st_mode & 0o077 == 0
    assert workspace_key(home) == own == str(key_path())
    remember(home, tmp_path, lake=str(home / "lake"), tracking_uri="http://mlflow:5000", key=own, say=print)
    for folder, name in ((tmp_path, "demo/key.pem"), (home, "key.pem")):
        found: dict[str, str] = {}
        recall(folder, found)
        assert found["MULTILINK_KEY"] == name
    users = tmp_path / "settings" / "multilink" / "key.pem"
    make_key(users)
    monkeypatch.setenv("MULTILINK_KEY", "")
    (tmp_path / FILE).unlink()
    assert workspace_key(home) == "" and key_path() == users


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """Somebody's file was rewritten by each demo, with another lake and without its comments."""
    own, lines = "# mine\nlake = 'old'\nverify = true\n", list[str]()
    (tmp_path / FILE).write_text(own)
    home = tmp_path / "demo"
    where = {"lake": str(home / "lake"), "tracking_uri": f"sqlite:///{home}/mlflow.db"}
    for _ in range(2):
        remember(home, tmp_path, **where, say=lines.append)
        assert (tmp_path / FILE).read_text() == own and len(lines) == 1 and f"cd {home}" in lines.pop()
    found: dict[str, str] = {}
    recall(home, found)
    assert found == {"MULTILINK_LAKE": "lake", "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}
    (tmp_path / FILE).unlink()
    for _ in range(2):
        remember(home, tmp_path, **where, say=lines.append)
    assert lines == []


@pytest.mark.parametrize("text", ["lake = ", "lakes = 'x'", "lake = 3", "verify = 'yes'"])
def test_a_broken_file_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ConfigError, match=r"multilink\.toml: .*expected"):
        recall(tmp_path, {})


def test_commands_find_the_lake_by_the_file_and_an_option_wins(multilink: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    remember(tmp_path, tmp_path, lake=str(tmp_path / "lake"), tracking_uri=f"sqlite:///{tmp_path}/mlflow.db", say=print)
    found = multilink("datasets", "list")
    assert (found.status, found.out) == (0, f"no data set in {tmp_path / 'lake'}\n")
    other = multilink("datasets", "show", "x", "--lake", "other")
    assert other.status == 2 and f"--lake {tmp_path / 'other'}: no folder is there" in other.err
    (tmp_path / FILE).write_text("lakes = 'x'\n")
    broken = multilink("datasets", "list")
    assert (broken.status, broken.err.count("\n")) == (2, 1)
    assert broken.err.startswith("multilink: multilink.toml: lakes: expected")


def test_programs_find_models_by_the_file_and_an_argument_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    where = {"lake": str(tmp_path / "lake"), "tracking_uri": f"sqlite:///{tmp_path}/own/mlflow.db"}
    remember(tmp_path, tmp_path, **where, say=print)
    for ask, store in (
        (partial(multilink.load, "models:/x/1"), "own/mlflow"),
        (partial(multilink.evaluate, "models:/x/1", "y", lake="lake"), "own/mlflow"),
        (partial(multilink.load, "models:/x/1", tracking_uri="sqlite:///other.db"), "other"),
    ):
        with pytest.raises(NotFoundError, match=rf"{store}\.db: no runs and models are there"):
            ask()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///third.db")
    with pytest.raises(NotFoundError, match=r"third\.db: no runs and models are there"):
        multilink.load("models:/x/1")
