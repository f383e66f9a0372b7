"""CITE, CITE++ and CLUE in small, in the published forms, with what such files get wrong."""

import re
from pathlib import Path
from typing import Any

import pytest
from candidates import by_id as drafts
from candidates import candidate_of, names, uris_of

from pipelines.sources.datasets.coherence import CiteSource, ClueSource
from pipelines.sources.records import CandidateDocument
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure
from schemas.messages import BuildError

FIXTURES = Path(__file__).parents[2] / "fixtures"
PUBLISHED = Path(__file__).resolve().parents[3].parent / "shared/data/cite-data.csv"
HEADER = "|Index|q2_resp|qimg|stim_id|stim_txt\n"


def cite(train: str = "data.csv", test: str = "", **settings: Any) -> list[CandidateDocument | Failure]:
    folder = FIXTURES / "cite"
    source = CiteSource(train=str(folder / train), test=str(folder / test) if test else "", **settings)
    return list(source.read())


def clue(**settings: Any) -> list[CandidateDocument | Failure]:
    folder = FIXTURES / "clue"
    paths = {name: str(folder / f"conceptual_{name}_dis.csv") for name in ("train", "test")}
    return list(ClueSource(**paths | settings).read())


def labels(draft: CandidateDocument) -> list[bool | None]:
    ((_, values),) = [zip(*link.relations, strict=True) for link in draft.links]
    return list(values)


def written(tmp_path: Path, *rows: str, header: str = HEADER) -> CiteSource:
    path = tmp_path / "data.csv"
    path.write_text(header + "\n".join(rows))
    return CiteSource(train=str(path))


def test_every_row_of_cite_is_a_document_or_a_failure() -> None:
    assert names(cite()) == [
        "all-0",
        "all-1",
        "all-2",
        "all-3",
        "all-4 empty-sentence",
        "all-5 missing-field",
        "all-6 broken-record",
        "all-0",
        "all-8",
        "data.csv:12 broken-record",
        "all-10",
        "all-11",
        "all-12",
        "data.csv:16 broken-record",
    ]


def test_a_row_of_cite_is_a_pair_with_its_relations() -> None:
    assert next(iter(cite())) == candidate_of(
        id="all-0",
        dataset="cite",
        sentences=(Sentence("Mix flour & butter, then let it rest."),),
        image_uris=("images-qa/train/images-qa/plum-cake_1_0.jpg",),
        links=(
            Link(
                0,
                0,
                (
                    ("expansion", True),
                    ("image_needed", False),
                    ("elaboration_text", True),
                    ("elaboration_image_tool", False),
                    ("temporal_image_before", False),
                    ("temporal_image_after", True),
                    ("temporal_image_during", False),
                ),
            ),
        ),
        provenance=Provenance("cite", "11_1"),
        language="en",
        split=Split.TRAIN,
    )


def test_blank_labels_are_unknown_and_spelled_tabs_and_entities_are_read() -> None:
    found = drafts(cite())
    assert labels(found["all-1"]) == [True, None, False, None, False, True, None]
    assert [found[f"all-{number}"].sentences[0].text for number in (1, 8, 11)] == [
        "'Quick' soup, won\u2019t be hot \u2013 or cold.", "Add the crème.", 'Cook "slowly" for 5 minutes.'
    ]  # fmt: skip


def test_the_one_file_of_cite_is_divided_by_image() -> None:
    # sha256sum of "0:<qimg>" / 2**64: .575, .207, .162, .575, .317, .642, .233, .797; test below .2, val below .28.
    assert {key: draft.split for key, draft in drafts(cite()).items()} == {
        "all-0": Split.TRAIN,
        "all-1": Split.VAL,
        "all-2": Split.TEST,
        "all-3": Split.TRAIN,
        "all-8": Split.TRAIN,
        "all-10": Split.TRAIN,
        "all-11": Split.VAL,
        "all-12": Split.TRAIN,
    }


def test_cite_plus_plus_has_commas_line_breaks_and_its_own_test_file() -> None:
    outcomes = cite("train.csv", "test.csv")
    assert names(outcomes)[5:] == ["train.csv:7 broken-record"]
    found = drafts(outcomes)
    assert {key: draft.split for key, draft in found.items()} == {
        "test-7": Split.TEST,
        "train-7": Split.TRAIN,
        "train-8": Split.VAL,
        "train-9": Split.TRAIN,
        "train-10": Split.TRAIN,
    }
    assert found["train-7"].sentences == (Sentence('Chop, wash and "rest" the leeks. Then bake.'),)
    assert {key: labels(found[key]) for key in ("test-7", "train-8", "train-10")} == {
        "test-7": [False, True, False, True, None, False, True],  # there is no q6
        "train-8": [False, True, False, True, None, True, False],
        "train-10": [None] * 7,
    }
    assert found["train-7"].provenance == Provenance("cite", "train-7")  # there is no stim_id


def test_a_column_that_names_the_split_is_kept() -> None:
    outcomes = cite("split.csv")
    found = [(draft.split, labels(draft)[0]) for draft in drafts(outcomes).values()]
    # oat-bars_2_0.jpg, blank, has place .55; fig-jam_2_0.jpg, train, has .02 but validation rows are named.
    assert names(outcomes) == ["all-0", "all-1", "all-2", "all-3 broken-record", "all-4"]
    assert found == [(Split.TRAIN, True), (Split.VAL, False), (Split.TEST, None), (Split.TRAIN, True)]


def test_fields_may_be_very_long(tmp_path: Path) -> None:
    (draft,) = written(tmp_path, f"0|0|True|a.jpg|1|{'word ' * 400_000}").read()
    assert len(draft.sentences[0].text) == 5 * 400_000 - 1


def test_rows_without_a_number_go_by_their_line(tmp_path: Path) -> None:
    source = written(tmp_path, "True|a.jpg|One", "", "False|a.jpg|Two", header="\ufeffq2|qimg|stim_txt\n")
    assert names(list(source.read())) == ["all-line2", "all-line4"]


def test_columns_that_are_missing_end_the_build(tmp_path: Path) -> None:
    for header, message in (
        ("a|b\n", r"data\.csv: expected the columns qimg, stim_txt, q2_resp, .*q8_resp; found a"),
        ("", r"data\.csv: expected a header, found an empty file"),
    ):
        with pytest.raises(BuildError, match=message):
            list(written(tmp_path, header=header).read())


def test_every_row_of_clue_is_a_document_or_a_failure() -> None:
    assert names(clue()) == [
        "test-0",
        "conceptual_test_dis.csv:3 broken-record",  # a comma in its URL, without quotes
        "test-2",
        "train-0",
        "train-1",
        "train-2",
        "train-3 empty-sentence",
        "train-4 missing-field",
        "train-5 broken-record",
        "train-6 broken-record",
        "train-7",
        "conceptual_train_dis.csv:11 broken-record",
    ]


def test_a_row_of_clue_is_a_pair_with_its_relations() -> None:
    found = drafts(clue())
    url = "http://images.example.org/a.jpg?s=1&amp;w=2"  # as published: a URL is not unescaped
    assert found["train-0"] == candidate_of(
        id="train-0",
        dataset="clue",
        sentences=(Sentence('bride & groom at the "sea"'),),
        image_uris=(url,),
        links=(
            Link(
                0,
                0,
                (
                    ("visible", True),
                    ("subjective", False),
                    ("action", True),
                    ("story", False),
                    ("meta", True),
                    ("irrelevant", False),
                ),
            ),
        ),
        provenance=Provenance("clue", "3030", url),
        language="en",
        split=Split.TRAIN,
    )
    assert labels(found["train-1"]) == [True, False, False, False, True, None]
    assert found["train-7"].sentences == (Sentence("cafè at night"),)


def test_published_test_rows_of_clue_are_kept_and_val_is_drawn() -> None:
    # sha256sum of "0:<url>" starts with ab, 46, 16 (a.jpg: .089), dd.
    assert {key: draft.split for key, draft in drafts(clue()).items()} == {
        "test-0": Split.TEST,
        "test-2": Split.TEST,
        "train-0": Split.TRAIN,
        "train-1": Split.TRAIN,
        "train-2": Split.VAL,
        "train-7": Split.TRAIN,
    }


def test_numbered_images_of_clue_are_used_where_there_are_some() -> None:
    found = drafts(clue(numbers=str(FIXTURES / "clue" / "img2idxmap.json"), images="images"))
    assert [uris_of(draft)[0] for draft in found.values()] == [
        "17.jpg",
        "https://images.example.org/54776,3/c.jpg",
        "http://images.example.org/a.jpg?s=1&amp;w=2",
        "17.jpg",
        "0.jpg",
        "http://images.example.org/e.jpg",
    ]
    assert found["train-1"].provenance.url == "http://images.example.org/b.jpg"


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published file is not here")
def test_the_published_file() -> None:
    """Against pandas-free reading: lines divided at their pipes, since none of them has a quote."""
    header, *lines = PUBLISHED.read_text(encoding="utf-8").splitlines()
    columns = header.split("|")
    rows = [dict(zip(columns, line.split("|"), strict=True)) for line in lines]
    found = list(CiteSource(train=str(PUBLISHED)).read())
    documents = [item for item in found if isinstance(item, CandidateDocument)]
    assert len(documents) + sum(isinstance(item, Failure) for item in found) == len(rows) == 2047
    by_id = {f"all-{row['']}": row for row in rows}
    blank = {key for key, row in by_id.items() if not row["stim_txt"].strip() or not row["qimg"].strip()}
    assert {document.id for document in documents} == by_id.keys() - blank
    spelled = {"True": True, "False": False, "": None}
    for document in documents:
        row = by_id[document.id]
        assert labels(document) == [spelled[row[f"q{number}_resp"]] for number in range(2, 9)]
        assert uris_of(document) == (f"images-qa/train/images-qa/{row['qimg'].strip()}",)
        (sentence,) = document.sentences
        assert not re.search(r"[\\\n\t]|  ", sentence.text)
    (apostrophe,) = (key for key, row in by_id.items() if "\\u0019" in row["stim_txt"])
    texts = {document.id: document.sentences[0].text for document in documents}
    assert "so your bag won\u2019t break open" in texts[apostrophe]
