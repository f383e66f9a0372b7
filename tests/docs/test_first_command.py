"""The first command of the README works as printed, in a clone, and prints what stands below it."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

from forked import clean_environment, start

ROOT = Path(__file__).resolve().parents[2]


def without_times(text: str) -> str:
    return re.sub(r"[\d.]+ (?:s|documents/s)\b", "", text)


def test_the_first_command_of_the_readme_prints_what_stands_below_it(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Use\n")[2]
    command, printed = re.findall(r"(?:^ {4}.*\n)+", section, re.MULTILINE)[:2]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = start(*shlex.split(command)[1:], folder=tmp_path, environment=clean_environment()).finish()
    assert done.status == 0, done.err
    assert without_times(done.out) == without_times(textwrap.dedent(printed))
    assert "Breakfast is an espresso." in (tmp_path / "linked" / "index.html").read_text(encoding="utf-8")
