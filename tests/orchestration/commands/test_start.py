"""Help and mistakes are answered before anything heavy is imported: what is loaded is compared, no clock is read."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from orchestration.cli import TREE, app, help_line, where_is
from training.mlflow.stored import stored_names

COMMANDS = Path(__file__).parents[3] / "orchestration" / "commands"
HEAVY = ("apache_beam", "dagster", "faiss", "jinja2", "matplotlib", "mlflow", "pandas", "PIL", "ray", "requests")
HEAVY += ("scipy", "sklearn", "spacy", "torch", "torchvision")
OF_PARTS = ("scipy", "torch")
PROGRAM = """
import atexit, gc, os, sys
from orchestration.__main__ import main
found = []
atexit.register(lambda: print(gc.get_freeze_count(), *found, file=open(os.environ["LOADED"], "w")))
try:
    main()
except SystemExit as end:
    found += [gc.get_threshold()[0], end.code, *sorted({name.partition(".")[0] for name in sys.modules})]
"""


def program(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code as a program of its own, with nothing in its environment but where Python looks and a file of a test."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "LOADED": str(folder / "loaded.txt")}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["trian"]])
def test_help_and_a_mistyped_command_import_nothing_of_a_command(tmp_path: Path, arguments: list[str]) -> None:
    done = program(tmp_path, PROGRAM, *arguments)
    assert (tmp_path / "loaded.txt").is_file(), done.stderr
    frozen, looks_after, _, *names = (tmp_path / "loaded.txt").read_text().split()
    assert int(frozen) > 0 and int(looks_after) == 20_000
    assert not {*names} & {*HEAVY, "numpy", "pyarrow", "urllib3", "yaml"}


MISTAKES = (
    ("build dyi --lake lake", "unknown data set 'dyi'; did you mean 'diy'?"),
    ("train --lake lake --dataset documents --recipe tinny", "unknown recipe 'tinny'; did you mean 'tiny'?"),
    ("settings tiny --set objective.similarty=dc", "did you mean 'objective.similarity'?"),
    ("train --lake lake", "--dataset: expected NAME"),
    ("train --lake nowhere --dataset documents", "no folder is there"),
    ("train --lake lake --dataset dyi", "no data set 'dyi' in"),
    ("train --lake lake --dataset dyi --tracking-uri sqlite:///nowhere/x.db", "nowhere/x.db: no such folder"),
    ("sweep --lake lake --dataset dyi --set objective.similarty=dc", "no data set 'dyi' in"),
    ("evaluate --model m --dataset dyi --lake lake", "no data set 'dyi' in"),
    ("evaluate --model m --dataset dyi --lake lake --split tset", "'tset' is not one of 'train', 'val', 'test'"),
    ("evaluate --scores none.jsonl", "Invalid value for '--scores': file 'none.jsonl' does not exist."),
    ("compare one --lake lake", "expected at least two models"),
    ("compare one two --lake lake --dataset dyi", "no data set 'dyi' in"),
    ("transfer --models a --datasets dyi --lake lake", "no data set 'dyi' in"),
    (
        "promote --model m --version 1 --policy none.toml",
        "Invalid value for '--policy': file 'none.toml' does not exist.",
    ),
    ("promote --model m --version 1 --policy lake/bad.toml", "lake/bad.toml: unknown key 'magrin'"),
    ("promotions m --tracking-uri sqlite:///mflow.db", "sqlite:///mflow.db: no such file"),
    ("serve --model m --calibration none.json", "Invalid value for '--calibration': file 'none.json' does not exist."),
    ("link --model m --input none.jsonl --output o.parquet", "--input none.jsonl: no such file"),
    ("link --dataset dyi --lake lake --output o", "no data set 'dyi' in"),
    ("link --model m --output o", "either --input PATH or --dataset NAME"),
    ("index --dataset dyi --lake lake", "no data set 'dyi' in"),
    ("search --index nowhere --headline Flood", "--index nowhere: no folder is there"),
    ("settings tinny", "did you mean 'tiny'?"),
)
SEVERAL = """
import contextlib, io, json, os, sys
from orchestration.cli import run
from orchestration.project import be_quiet
be_quiet()
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as told:
        status = run(line.split())
    print(json.dumps([status, told.getvalue(), sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def test_a_mistake_is_told_before_a_library_is_imported(tmp_path: Path) -> None:
    """One process makes all of them, those last whose settings of a part lie beside its code."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "bad.toml").write_text("magrin = 1.0\n")
    mistakes = sorted(MISTAKES, key=lambda each: "--set objective" in each[0])
    done = program(tmp_path, SEVERAL, json.dumps([line for line, _ in mistakes]))
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(mistakes), done.stderr
    for (line, words), (status, told, names) in zip(mistakes, found, strict=True):
        assert status == 2 and words in told, (line, told)
        assert not set(names) & set(HEAVY).difference(OF_PARTS if "--set objective" in line else ()), line
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}, "a mistake leaves nothing behind"


@pytest.mark.parametrize("group", TREE)
def test_what_the_help_says_of_a_command_is_what_the_command_says(group: str) -> None:
    tree: Any = get_command(app)
    parent = tree.get_command(None, group) if group else tree
    for name in parent.list_commands(None):
        told = help_line(f"{group} {name}".strip())
        assert told and told == parent.get_command(None, name).help.partition("\n")[0]


def test_every_file_of_the_commands_is_in_the_tree() -> None:
    files = {path.stem for path in COMMANDS.glob("*.py")} - {"options", "__init__"}
    paths = {f"{group} {name}".strip() for group, names in TREE.items() for name in names}
    assert {where_is(path)[0] for path in paths} == files


def test_linking_by_class_names_needs_no_mlflow() -> None:
    program = (
        "import sys, multilink.models; multilink.models.opened('class-names', None); print('mlflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_values_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "datasets" / "diy" / "1a2b").mkdir(parents=True)
    (tmp_path / "datasets" / "diy" / "1a2b" / "manifest.json").touch()
    assert stored_names(f"sqlite:///{tmp_path}/none.db") == stored_names(f"sqlite:///{__file__}") == []
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute("CREATE TABLE registered_models (name TEXT)")
        database.execute("INSERT INTO registered_models VALUES ('multilink-diy-ap')")
    monkeypatch.setenv("MULTILINK_LAKE", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    for words, found in (
        ("multilink train --recipe hessel-2019-", "hessel-2019-fine-tuned"),
        ("multilink train --dataset d", "diy"),
        ("multilink datasets show d", "diy"),
        ("multilink promote --model m", "multilink-diy-ap"),
        ("multilink link --model class", "class-names"),
    ):
        about = {"_MULTILINK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        assert found in CliRunner().invoke(app, prog_name="multilink", env=about).output.split(), words
