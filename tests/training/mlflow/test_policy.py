from pathlib import Path

import pytest

from schemas.documents import Split
from schemas.errors import ConfigError, NotFoundError
from training.mlflow.gate import STANDARD_POLICY, Guard, Minimum, Policy, read_policy

FULL = """
latest_only = false
seed = 3

[minimum]
auc = 70
precision_at_1 = 40.5

[[guards]]
dataset = "rqa"
margin = 2

[[guards]]
dataset = "wiki"
split = "val"
"""


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_a_file_says_all_there_is_to_say(tmp_path: Path) -> None:
    assert read_policy(_file(tmp_path, FULL)) == Policy(
        latest_only=False,
        seed=3,
        minimum=Minimum(auc=70.0, precision_at_1=40.5),
        guards=(Guard(dataset="rqa", margin=2.0), Guard(dataset="wiki", split=Split.VAL)),
    )


def test_an_empty_file_is_the_standard_policy(tmp_path: Path) -> None:
    assert read_policy(_file(tmp_path, "")) == STANDARD_POLICY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[minimum]\nacu = 70", "unknown key 'minimum.acu'; did you mean 'minimum.auc'"),
        ("lastest_only = true", "unknown key 'lastest_only'; did you mean 'latest_only'"),
        ("[[guards]]\ndataset = 'rqa'\nmargn = 1", "unknown key 'guards.margn'; did you mean 'guards.margin'"),
        ("[[guards]]\nmargin = 1", "guards.dataset = '': expected a name"),
        ("[minimum]\nauc = 170", "minimum.auc = 170.0: must be from 0 to 100"),
        ("[minimum]\nauc = 'high'", "minimum.auc = 'high': expected a number, found text"),
        ("[[guards]]\ndataset = 'rqa@v1'", "guards.dataset = 'rqa@v1': expected a name without version"),
        ("[[guards]]\ndataset = 'rqa'\n[[guards]]\ndataset = 'rqa'", "guards = .*: name a data set once"),
        ("[[guards]]\ndataset = 'rqa'\nmargin = -1", "guards.margin = -1.0: must not be negative"),
        ("level = 1.0", "level = 1.0: must be between 0 and 1"),
        ("resamples = 0", "resamples = 0: must be at least 1"),
        ("auc 70", "expected TOML: .*line 1"),
    ],
)
def test_a_mistake_is_told_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_policy(path)
    assert str(caught.value).startswith(f"--policy {path}: ")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        read_policy(tmp_path / "absent.toml")
