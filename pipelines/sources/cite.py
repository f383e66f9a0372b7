"""CITE and CITE++: steps of RecipeQA's recipes with an image each, and what people saw between them (Alikhani 2022).

    CITE     |Index|q10_resp|q1_resp|...|q9_resp|qimg|stim_id|stim_txt|complement     True, False or blank
    CITE++   the same with commas, in a training and a test file

Of the ten questions, `q2` to `q8` are relations. CITE has no published split: where neither a file nor a column names
one, test and validation rows are drawn by a hash of the image's name, so that the rows of one pair, which was judged up
to four times, stay together. Files are streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.coherence import Row, read_pairs
from pipelines.sources.draws import share_of
from pipelines.sources.inputs import IMAGES, Input, needed, require_placeholder, require_share
from pipelines.sources.records import file_name, split_named
from schemas.documents import Split
from schemas.failures import Failure

# Relation -> the columns that hold it, the first there is (A table 1).
RELATIONS: Mapping[str, tuple[str, ...]] = {
    name: (f"q{number}", f"q{number}_resp")
    for number, name in enumerate(
        (
            "expansion",
            "image_needed",
            "elaboration_text",
            "elaboration_image_tool",
            "temporal_image_before",
            "temporal_image_after",
            "temporal_image_during",
        ),
        start=2,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CiteSource:
    """CITE's one file, or the two files of CITE++.

    Attributes:
        train: path of the training rows, or of the only file.
        test: path of the test rows; empty where there is only one file.
        split_column: where a file has it, a row's split is the one it names; that of rows it leaves blank is drawn.
        images: folder or tar of RecipeQA's images.
        image_pattern: where an image is below `images`: `{name}` is the column `qimg`. The published rows are of
            RecipeQA's training images.
        val_share: of the training rows that no column names, for validation (A: 10%).
        test_share: of all rows, for test where neither a file nor a column says (A: 860 of 4,299).
        seed: of those choices.
    """

    train: str = ""
    test: str = ""
    split_column: str = "split"
    images: str = ""
    image_pattern: str = "images-qa/train/images-qa/{name}"
    val_share: float = 0.1
    test_share: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        require_placeholder(self.image_pattern, "{name}")
        require_share("val_share", self.val_share)
        require_share("test_share", self.test_share)

    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        return needed("train", "data.csv", "train.csv"), Input("test", published=("test.csv",)), IMAGES


def read(source: CiteSource) -> Iterator[CandidateDocument | Failure]:
    """Yield CITE's or CITE++'s pairs, test file first, and a failure for each row that cannot be used.

    An id is `<file>-<row number>`, the file being `train`, `test`, or `all` where there is only one.

    Raises:
        BuildError: a file has no header, or one without the columns needed.
        NotFoundError: there is no such file.
    """
    for part, path in (("test", source.test), ("train" if source.test else "all", source.train)):
        if path:
            image_of = partial(_image, part=part, source=source)
            columns = ("stim_txt", "qimg", "stim_id")
            yield from read_pairs(path, "cite", part, relations=RELATIONS, columns=columns, image_of=image_of)


def _image(row: Row, *, part: str, source: CiteSource) -> tuple[str, Split]:
    name = file_name(row["qimg"], "qimg")
    named = split_named(row.get(source.split_column), source.split_column)
    return source.image_pattern.replace("{name}", name), named or _drawn_split(name, part, source)


def _drawn_split(name: str, part: str, source: CiteSource) -> Split:
    """Return the split of an image's rows, as the file's part and a hash of the name say."""
    test_share = source.test_share if part == "all" else 0.0
    drawn = share_of(name, seed=source.seed)
    if part == "test" or drawn < test_share:
        return Split.TEST
    return Split.VAL if drawn < test_share + source.val_share * (1 - test_share) else Split.TRAIN
