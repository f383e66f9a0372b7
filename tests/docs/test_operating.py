"""The commands of the page on operating work in its order; what was backed up links as before, to the byte."""

import hashlib
import itertools
import json
import re
import shutil
import sqlite3
import subprocess
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from forked import clean_environment, start
from repository import ROOT

MODEL = "multilink-documents-closed-form"


def blocks_of(question: int) -> str:
    """Return the commands under a question, of the data set that this test has, but those with a place to fill in."""
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    section = page.partition(f"## {question}. ")[2].partition("\n## ")[0]
    found = [block for block in re.findall(r"(?:^ {4}.*\n)+", section, re.MULTILINE) if "NEW" not in block]
    return textwrap.dedent("".join(found)).replace("diy", "documents")


class Workspace:
    """A folder like that of the demo: a workspace, the file that names it, a key."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = clean_environment(MULTILINK_KEY=str(home / "key.pem"))

    def multilink(self, *arguments: str) -> str:
        done = start(*arguments, folder=self.home, environment=self.environment).finish()
        assert done.status == 0, f"{arguments}: {done.err}"
        return done.out

    def run(self, script: str) -> str:
        """Run commands in their order, those of multilink in processes that start fast; return what they print."""
        printed = ""
        for is_own, lines in itertools.groupby(script.splitlines(), key=lambda line: line.startswith("multilink ")):
            if is_own:
                printed += "".join(self.multilink(*line.split()[1:]) for line in lines)
                continue
            command = ["bash", "-euc", "\n".join(lines)]
            done = subprocess.run(
                command, cwd=self.home, env=self.environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            printed += done.stdout
        return printed

    def links(self, name: str) -> dict[str, str]:
        """Let the champion link the data set, and return the digests of what it writes."""
        self.multilink("link", "--model", MODEL, "--dataset", "documents", "--output", name)
        files = sorted((self.home / name).rglob("*.parquet"))
        return {
            str(file.relative_to(self.home / name)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
        }


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Workspace:
    """Two champions, one after the other, and two versions of a data set."""
    home = tmp_path_factory.mktemp("operating")
    lake = ROOT / "tests" / "fixtures" / "formats" / "0.1.0" / "lake" / "datasets"
    shutil.copytree(lake, home / "demo" / "lake" / "datasets")
    shutil.copy(template, home / "demo" / "mlflow.db")
    (home / "multilink.toml").write_text('lake = "demo/lake"\ntracking_uri = "sqlite:///demo/mlflow.db"\n')
    (home / "policy.toml").write_text("min_documents = 2\n")
    made = Workspace(home)
    made.multilink("key")
    for _ in range(2):
        made.multilink(
            "train", "--dataset", "documents", "--recipe", "closed-form", "--set", "dimensions=8", "--no-report"
        )
        made.multilink("promote", "--model", MODEL, "--version", "challenger", "--policy", "policy.toml")
    made.multilink("datasets", "subset", "documents", "--share", "0.5")
    (home / "demo" / "lake" / "pages").mkdir()
    pages = home / "demo" / "lake" / "pages" / "pages.sqlite"
    with closing(sqlite3.connect(pages)) as database, database:
        database.execute("create table decisions as select 7 as number")
    database.close()
    return made


@pytest.mark.slow
def test_the_night_is_gone_through_in_order(workspace: Workspace) -> None:
    printed = workspace.run(blocks_of(4))
    assert f"models:/{MODEL}/1 is the champion again, in place of version 2" in printed
    assert "would delete: " in workspace.run(blocks_of(6))
    versions: dict[str, Any] = json.loads(workspace.multilink("datasets", "list", "--json").splitlines()[-1])
    (old,) = set(versions["documents"]["versions"]) - {versions["documents"]["latest"]}
    printed = workspace.run(blocks_of(7).replace("VERSION", old))
    assert f"deleted: documents@{old}" in printed
    assert not (workspace.home / "demo" / "lake" / "datasets" / "documents" / old).exists()
    before = workspace.links("before")
    workspace.run(blocks_of(8))
    shutil.rmtree(workspace.home / "demo")
    (workspace.home / "multilink.toml").unlink()
    printed = workspace.run(blocks_of(9))
    assert "intact" in printed and f"models:/{MODEL}/1 is as it was promoted" in printed
    assert workspace.links("after") == before and len(before) == 6
    with sqlite3.connect(workspace.home / "demo" / "lake" / "pages" / "pages.sqlite") as database:
        assert database.execute("select number from decisions").fetchall() == [(7,)]
    database.close()
    assert (workspace.home / "backup" / "key.pem").read_bytes() == (workspace.home / "key.pem").read_bytes()
