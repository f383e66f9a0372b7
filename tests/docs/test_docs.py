"""The guide builds without a warning, and every command that README and guide print is one that its program takes."""

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from commands import parse
from repository import ROOT

from schemas.messages import NotFoundError
from schemas.overrides import override

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code_of(page: Path) -> Iterator[str]:
    """Yield each line of code of a page: what is indented or fenced, and what stands between backticks."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (line.strip() for line in re.findall(r"^ {4,}(\S.*)$", text, re.MULTILINE))
    yield from re.findall(r"`([^`\n]+)`", text)


def commands_of(page: Path) -> list[str]:
    """Return the commands of `multilink` with arguments that a page prints, without what the shell alone reads."""
    found = [re.sub(r"^(?:[A-Z_]+=\S+ )+", "", re.split(r" (?:#|&&) ", line)[0].strip()) for line in code_of(page)]
    return sorted(
        {line for line in found if re.match(r"multilink [a-z]+ \S", line) and not re.search(r"[\[|]|\.\.\.", line)}
    )


EVERY = [(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in commands_of(page)]


@pytest.mark.parametrize(("page", "line"), EVERY, ids=[f"{page}: {line}" for page, line in EVERY])
def test_a_command_in_the_guide_is_one(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTILINK_LAKE", "lake")
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: io.BytesIO())
    try:
        context = parse(shlex.split(line))
    except typer.TyperException as problem:  # in running text, an option may be named without the others
        words = problem.format_message()
        is_of_the_readers = words.endswith("does not exist.")  # a file that the reader has
        assert is_of_the_readers or words.startswith(("Missing option", "Missing argument", "Missing parameter"))
        return
    except NotFoundError as problem:  # a file that the reader has
        assert re.search(r"no (such file|folder is there)", str(problem))
        return
    settings = [each for each in context.params.get("settings") or context.params.get("set_") or [] if "=" not in each]
    assert not settings, f"{page}: {settings}: --set expects KEY=VALUE"


def test_recipes_named_beside_settings_take_them() -> None:
    from training.recipes import recipe

    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name, setting in re.findall(r"multilink train .*--recipe (\S+).*--set (\S+=\S+)", text):
        override(recipe(name), [setting])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_targets_of_make_that_a_page_names_are_there(page: Path) -> None:
    assert {word for line in code_of(page) for word in re.findall(r"^make ([a-z-]+)", line)} <= TARGETS


def test_the_guide_builds_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert not re.search(r"^WARNING +-", done.stderr, re.MULTILINE)  # --strict with --quiet would see none
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= 17
    assert not list((tmp_path / "site").rglob("__pycache__"))
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']https?://|<link[^>]+stylesheet[^>]+href=["']https?://""")
    assert [page.name for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
    listed = set(re.findall(r"\]\((\S+?\.html)\)", (tmp_path / "site" / "llms.txt").read_text(encoding="utf-8")))
    assert listed == {page.relative_to(tmp_path / "site").as_posix() for page in pages} - {"404.html", "index.html"}


def test_the_page_of_parts_shows_one_file_of_the_example_and_names_the_others() -> None:
    """What is shown is the whole file that the tests install and use."""
    page, parts = (ROOT / "docs/how-to/parts.md").read_text(encoding="utf-8"), ROOT / "examples/parts"
    shown = dict(re.findall(r"^```python\n# (examples/\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    assert shown and all((ROOT / name).read_text(encoding="utf-8") == text for name, text in shown.items())
    written = {path.relative_to(parts).as_posix() for path in parts.rglob("*.py") if path.name != "__init__.py"}
    assert set(re.findall(r"`(multilink_parts/\w+\.py)`", page)) == written


def test_the_scores_of_the_readme_are_those_of_the_page_that_it_cites() -> None:
    """Each row of the README has the AUC of that model's row on the page, data set by data set."""
    tables = {name: _rows(ROOT / name) for name in ("README.md", "docs/explanation/learning.md")}
    page, (heading, *rows) = tables["docs/explanation/learning.md"], tables["README.md"]
    columns = [page[0].index(f"{name}: AUC") for name in heading[1:]]
    scores = {row[0]: [row[column] for column in columns] for row in page}
    assert len(rows) == 4 and all(scores[title] == cells for title, *cells in rows)


def _rows(page: Path) -> list[list[str]]:
    """Return the cells of a page's first table of models, its heading first."""
    text = page.read_text(encoding="utf-8")
    heading, _, *rows = re.findall(r"^\| model \|.*\n(?:\|.*\n)+", text, re.MULTILINE)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in (heading, *rows)]
