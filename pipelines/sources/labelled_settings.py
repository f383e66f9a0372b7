"""Settings of the sources whose links people gave or labelled: RecipeQA, CITE and CITE++, CLUE (SPEC 2).

Only dataclasses and their checks; the readers are `recipeqa.py`, `cite.py` and `clue.py`. An image pattern gives a name
below `images`, a folder or a tar that the images stage looks in (another extension is tried there).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.configs import require


class Delimiter(StrEnum):
    """What separates the columns of a CSV file; `auto` reads it off the header."""

    AUTO = "auto"
    PIPE = "|"
    COMMA = ","


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeqaSource:
    """RecipeQA's questions, of which only the recipes are read.

    Attributes:
        train: path of `train.json`.
        val: path of `val.json`, whose recipes are the test split (H); empty: no test split.
        images: folder or tar that `images.zip` unpacks to.
        image_pattern: where an image lies below `images`; `{name}` is its published name, `{split}` the published
            split of its question (`train` or `val`).
        val_share: of the training recipes, for validation (H: 1K beside 7K).
        seed: of that choice.
    """

    train: str = ""
    val: str = ""
    images: str = ""
    image_pattern: str = "images-qa/{split}/images-qa/{name}"
    val_share: float = 0.125
    seed: int = 0

    def __post_init__(self) -> None:
        _require_placeholder(self.image_pattern, "{name}")
        _require_share("val_share", self.val_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class CiteSource:
    """CITE's one file, or the two files of CITE++.

    Attributes:
        train: path of the training rows, or of the only file.
        test: path of the test rows; empty where there is only one file.
        delimiter: CITE's is a pipe, CITE++'s a comma.
        split_column: where a file has it, a row's split is the one it names, and rows it leaves blank are drawn.
        images: folder or tar of RecipeQA's images.
        image_pattern: where an image lies below `images`: `{name}` is the column `qimg`, `{stem}` the same without
            its extension, `{stim_id}` that column. The published rows are of RecipeQA's training images.
        val_share: of the training rows, for validation (A: 10%); not drawn where the split column names validation
            rows.
        test_share: of all rows, for test where neither a file nor a column says (A: 860 of 4,299).
        seed: of those choices.
    """

    train: str = ""
    test: str = ""
    delimiter: Delimiter = Delimiter.AUTO
    split_column: str = "split"
    images: str = ""
    image_pattern: str = "images-qa/train/images-qa/{name}"
    val_share: float = 0.1
    test_share: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        _require_placeholder(self.image_pattern, "{name}", "{stem}", "{stim_id}")
        _require_share("val_share", self.val_share)
        _require_share("test_share", self.test_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClueSource:
    """CLUE's two files, and the images that its authors fetched, if there are any.

    Attributes:
        train: path of `conceptual_train_dis.csv`.
        test: path of `conceptual_test_dis.csv`; empty: no test split.
        numbers: path of `img2idxmap.json` (URL -> number); empty: images are fetched from their URLs.
        images: folder or tar of the numbered images; needed with `numbers`.
        image_pattern: where an image lies below `images`.
        val_share: of the training rows, for validation (A: 10%).
        seed: of that choice.
    """

    train: str = ""
    test: str = ""
    numbers: str = ""
    images: str = ""
    image_pattern: str = "{number}.jpg"
    val_share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        _require_placeholder(self.image_pattern, "{number}")
        _require_share("val_share", self.val_share)
        has_root = bool(self.images) or not self.numbers
        require(has_root, field="source.images", value=self.images, rule="must be given with source.numbers")


def _require_share(name: str, value: float) -> None:
    require(0 <= value < 1, field=f"source.{name}", value=value, rule="must be in [0, 1)")


def _require_placeholder(pattern: str, *placeholders: str) -> None:
    has_one = any(placeholder in pattern for placeholder in placeholders)
    rule = f"must contain {' or '.join(placeholders)}"
    require(has_one, field="source.image_pattern", value=pattern, rule=rule)
