"""The rules that split sentences, and a pipeline of one's own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.sources.text import Paragraphs, paragraphs_of, split_sentences
from schemas.errors import ConfigError


@pytest.mark.parametrize(
    ("paragraphs", "expected"),
    [
        ([], ()),
        (["", "  \n "], ()),
        (["One.  Two!\nThree?"], ("One.", "Two!", "Three?")),
        (["Dr. Strickland paid $3.50 to Mr. Owen of St. Louis. He left."],
         ("Dr. Strickland paid $3.50 to Mr. Owen of St. Louis.", "He left.")),
        (["A list of birds", "Another list"], ("A list of birds", "Another list")),
        (["Ends here.", "* \u2014 \u00ab"], ("Ends here.",)),
        (["\u4e00\u4e8c\u3002\u4e09\u3002"], ("\u4e00\u4e8c\u3002\u4e09\u3002",)),
    ],
)  # fmt: skip
def test_rules(paragraphs: list[str], expected: tuple[str, ...]) -> None:
    assert split_sentences(paragraphs).sentences == expected


def test_no_more_is_read_than_it_takes() -> None:
    def paragraphs() -> Iterator[str]:
        yield "One. Two."
        yield "Three. Four."
        raise AssertionError("read on")

    found = split_sentences(paragraphs(), limit=3)
    assert found.sentences == ("One.", "Two.", "Three.")
    assert [found.before(paragraph) for paragraph in range(4)] == [0, 2, 3, 3]


def test_a_paragraph_longer_than_spacy_likes() -> None:
    found = split_sentences(["A long bird sleeps. " * 60_000])  # 1.2 million characters
    assert len(found.sentences) == 60_000


@pytest.mark.parametrize("text", ["!?", "(", "\u20ac", "http://a"])
def test_a_word_without_end_is_cut(text: str) -> None:
    assert split_sentences([f"One sees {text * 50_000}", "Two."]).sentences[-1] == "Two."


@pytest.mark.parametrize("language", ["de", "fr", "rm", "de-AT"])
def test_other_languages(language: str) -> None:
    assert split_sentences(["Allegra. Bun di!"], language=language).sentences == ("Allegra.", "Bun di!")


def test_a_pipeline_of_ones_own(tmp_path: Path) -> None:
    import spacy  # takes a second, of every process that shares the tests

    semicolons = spacy.blank("en")
    semicolons.add_pipe("sentencizer", config={"punct_chars": [";"]})
    semicolons.to_disk(tmp_path / "semicolons")
    spacy.blank("en").to_disk(tmp_path / "none")
    found = split_sentences(["One. Two; three."], model=str(tmp_path / "semicolons"))
    assert found.sentences == ("One. Two;", "three.")
    with pytest.raises(ConfigError, match="found none"):
        split_sentences(["x"], model=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="expected an installed spaCy pipeline"):
        split_sentences(["x"], model="no_such_pipeline")


def test_paragraphs_and_what_stands_between_them() -> None:
    pieces = [1, " one", 2, " half\n", "\n \n", 3, "two\n\nthree", "\n", 4]
    assert paragraphs_of(pieces, str.upper) == Paragraphs(
        ("ONE HALF", "TWO", "THREE"), ((1, 0), (2, 0), (3, 1), (4, 3))
    )
    assert paragraphs_of([]) == Paragraphs(())


SPLITS = """
import sys
from pipelines.sources.text import split_sentences

found = split_sentences(["Put glue on it. Wait. It holds."])
assert found.sentences == ("Put glue on it.", "Wait.", "It holds."), found
assert "torch" not in sys.modules
lines = open("/proc/self/status").read().splitlines()  # of this program alone, and not of the one that began it
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
import torch

assert torch.ones(2).sum() == 2
"""


def test_splitting_by_rules_imports_no_networks() -> None:
    """Half a gigabyte less: 0.2 GB, as the operating system counts it."""
    done = subprocess.run([sys.executable, "-c", SPLITS], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 400_000  # kB
