"""CITE and CITE++: steps of RecipeQA's recipes with an image each, and what people saw between them (Alikhani 2022).

    CITE     |Index|q10_resp|q1_resp|...|q9_resp|qimg|stim_id|stim_txt|complement     True, False or blank
    CITE++   the same with commas, in a training and a test file

Of the ten questions, `q2` to `q8` are relations. CITE has no published split: where neither a file nor a column names
one, test and validation rows are drawn by a hash of the image's name, so that the rows of one pair, which was judged up
to four times, stay together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath

from pipelines.sources.candidate import CandidateDocument
from pipelines.sources.coherence import Format, Pair, read_pairs, text_of
from pipelines.sources.csv_rows import Row, read_table
from pipelines.sources.fields import FieldError, split_named
from pipelines.sources.labelled_settings import CiteSource, Delimiter
from pipelines.sources.openings import Place, input_file
from pipelines.sources.recipeqa import name_problem
from pipelines.splits.assign import place_of
from schemas.configs import require
from schemas.documents import Split
from schemas.failures import Failure

DATASET = "cite"

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


def read_cite(source: CiteSource) -> Iterator[CandidateDocument | Failure]:
    """Yield CITE's or CITE++'s pairs, test file first, and a failure for each row that cannot be used.

    An id is `<file>-<row number>`, the file being `train`, `test`, or `all` where there is only one.

    Raises:
        BuildError: a file has no header, or one without the columns needed.
        ConfigError: no file is named.
        FileNotFoundError: there is no such file.
    """
    require(bool(source.train), field="source.train", value=source.train, rule="expected the path of a CITE file")
    delimiter = None if source.delimiter is Delimiter.AUTO else str(source.delimiter)
    files = [("test", source.test), ("train", source.train)] if source.test else [("all", source.train)]
    for part, path in files:
        table = read_table(path, delimiter=delimiter)
        has_val = source.split_column in table.columns and _names_val(path, delimiter, source.split_column)
        form = Format(DATASET, part, ("qimg", "stim_txt"), RELATIONS)
        yield from read_pairs(
            input_file(path), table, form, partial(_pair, part=part, source=source, draws_val=not has_val)
        )


def _pair(row: Row, *, part: str, source: CiteSource, draws_val: bool) -> Pair:
    name, stim_id = row.cells["qimg"], row.cells.get("stim_id", "")
    for used in (name, stim_id) if "{stim_id}" in source.image_pattern else (name,):
        if (problem := name_problem(used)) is not None:
            raise FieldError(*problem)
    uri = source.image_pattern.replace("{stem}", PurePosixPath(name).stem).replace("{stim_id}", stim_id)
    split = _named_split(row, part, source.split_column)
    place = place_of(name, seed=source.seed)
    if split is None and place < source.test_share:
        split = Split.TEST
    elif split is None:
        split = Split.TRAIN
        place = (place - source.test_share) / (1 - source.test_share)
    if split is Split.TRAIN and draws_val and place < source.val_share:
        split = Split.VAL
    return Pair(text_of(row.cells["stim_txt"]), uri.replace("{name}", name), split, stim_id)


def _named_split(row: Row, part: str, column: str) -> Split | None:
    """Return the split that a row's column or else its file names; None where neither does."""
    return split_named(row.cells.get(column), column) or {"train": Split.TRAIN, "test": Split.TEST}.get(part)


def _names_val(place: Place, delimiter: str | None, column: str) -> bool:
    rows = read_table(place, delimiter=delimiter).rows
    return any(isinstance(row, Row) and _says_val(row.cells[column]) for row in rows)


def _says_val(cell: str) -> bool:
    try:
        return split_named(cell, "split") is Split.VAL
    except FieldError:  # told when the row is read
        return False
