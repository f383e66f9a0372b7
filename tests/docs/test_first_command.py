"""The first command of README, the newcomer's page and the first code on Python work as printed."""

import json
import random
import re
import shlex
import textwrap
from pathlib import Path

import pytest
from forked import clean_environment, start
from PIL import Image, ImageDraw
from repository import ROOT


def without_times(text: str) -> str:
    return re.sub(r"[\d.]+ (?:s|documents/s)\b", "", text)


def test_the_first_command_of_the_readme_prints_what_stands_below_it(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Use\n")[2]
    command, printed = re.findall(r"(?:^ {4}.*\n)+", section, re.MULTILINE)[:2]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = start(*shlex.split(command)[1:], folder=tmp_path, environment=clean_environment()).finish().check()
    assert without_times(done.out) == without_times(textwrap.dedent(printed))
    assert "Breakfast is an espresso." in (tmp_path / "linked" / "index.html").read_text(encoding="utf-8")


@pytest.mark.trial
def test_the_first_block_of_the_page_on_python_works_for_documents_without_links(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    code = re.findall(r"^ {4}import multilink\n(?:^ {4}.*\n|^\n)+", page, re.MULTILINE)[0]
    (tmp_path / "program.py").write_text(textwrap.dedent(code))
    steps = [
        ("Cut the boards.", "rectangle", "red"),
        ("Glue the parts.", "ellipse", "green"),
        ("Paint the door.", "rectangle", "blue"),
        ("Sand the edges.", "ellipse", "orange"),
        ("Drill a hole.", "ellipse", "black"),
        ("Wax the table.", "rectangle", "yellow"),
    ]
    (tmp_path / "own" / "shelf").mkdir(parents=True)
    lines = []
    for number in range(60):
        images, some = [], random.Random(number).sample(steps, 2) if number else steps[:2]
        for place, (_, shape, colour) in enumerate(some):
            name = f"shelf/{place + 1}.jpg" if number == 0 else f"{number}-{place}.jpg"
            picture = Image.new("RGB", (96 + number, 96), "white")
            getattr(ImageDraw.Draw(picture), shape)((10 + number // 2, 10, 80, 50 + number // 2), fill=colour)
            picture.save(tmp_path / "own" / name)
            images.append({"path": name})
        lines.append(json.dumps({"sentences": [text for text, _, _ in some], "images": images}))
    (tmp_path / "own" / "documents.jsonl").write_text("\n".join(lines) + "\n")
    done = start(folder=tmp_path, environment=clean_environment(), program=tmp_path / "program.py").finish().check()
    assert "GCSFileSystem" not in done.err and "apitools" not in done.err
    expected = [("Cut the boards.", "own/shelf/1.jpg"), ("Glue them.", "own/shelf/2.jpg")]
    assert sorted(tuple(line.split("  ")[1:]) for line in done.out.splitlines()) == expected


@pytest.mark.trial
@pytest.mark.timeout(1200)
def test_the_newcomers_page_works_line_by_line_in_an_empty_folder(tmp_path: Path) -> None:
    """Everything but the page of labels, for pages in HTML and Markdown."""
    (tmp_path / "own" / "img").mkdir(parents=True)
    for number in range(24):
        pieces = []
        for position, shape in enumerate(("rectangle", "ellipse")):
            colour = ("red", "green", "blue", "orange", "black")[(number + position) % 5]
            picture = Image.new("RGB", (96 + number, 96), "white")
            getattr(ImageDraw.Draw(picture), shape)((10 + number, 10, 80, 50 + number), fill=colour)
            name = f"{2 * number + position + 1}.jpg"
            picture.save(tmp_path / "own" / "img" / name)
            pieces.append((f"A {colour} {shape}.", f"img/{name}"))
        if number % 2:
            text = "".join(f'<p>{sentence}</p><img src="{name}">' for sentence, name in pieces)
            (tmp_path / "own" / f"{number}.html").write_text(text)
        else:
            text = "\n\n".join(f"{sentence}\n\n![]({name})" for sentence, name in pieces)
            (tmp_path / "own" / f"{number}.md").write_text(text)
    page = (ROOT / "docs" / "tutorials" / "own-documents.md").read_text(encoding="utf-8")
    printed = []
    for block in re.findall(r"(?:^ {4}(?:multilink|import) .*\n)(?:^ {4}.*\n)*", page, re.MULTILINE):
        if "import multilink" in block:
            (tmp_path / "program.py").write_text(textwrap.dedent(block))
            program = tmp_path / "program.py"
            printed.append(start(folder=tmp_path, environment=clean_environment(), program=program).finish())
        else:
            commands = [shlex.split(line)[1:] for line in block.splitlines()]
            printed += [start(*each, folder=tmp_path, environment=clean_environment()).finish() for each in commands]
    assert [done.err for done in printed if done.status] == []
    links, *_, python, _, colleague = (done.out for done in printed)
    assert "links of 24 documents" in links and "links of 24 documents" in colleague
    left_out, *documents = python.splitlines()
    assert left_out == "()" and len(documents) == 24
    assert (tmp_path / "linked" / "index.html").is_file()
