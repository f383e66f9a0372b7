"""The released files in small."""

import json
from pathlib import Path
from typing import Any

import pytest
from candidates import candidate_of, names, uris_of

from pipelines.sources.datasets.hessel import MultiRetrievalSource
from pipelines.sources.records import CandidateDocument
from schemas.documents import Link, Provenance, Sentence, Split
from schemas.failures import Failure

ROWS = {"i0": 10, "i1": 11, "i2": 12}


def read(tmp_path: Path, corpus: Any, rows: Any = ROWS) -> list[CandidateDocument | Failure]:
    documents, id2row = tmp_path / "docs.json", tmp_path / "id2row.json"
    documents.write_text(json.dumps(corpus))
    id2row.write_text(json.dumps(rows))
    return list(MultiRetrievalSource(documents=str(documents), id2row=str(id2row)).read())


def test_links_are_the_union_of_both_sides(tmp_path: Path) -> None:
    images = [["i0", 1], ["i1", -1], ["i2", 0]]
    sentences = [["a", -1], ["b", 0], ["c", 1]]
    (draft,) = read(tmp_path, {"train": [], "val": [[images, sentences, {}]], "test": []})
    assert draft == candidate_of(
        id="val-0",
        dataset="multi-retrieval",
        sentences=(Sentence("a"), Sentence("b"), Sentence("c")),
        image_uris=("row:10", "row:11", "row:12"),
        links=(Link(0, 2), Link(1, 0), Link(2, 1)),
        provenance=Provenance("multi-retrieval", "val-0"),
        split=Split.VAL,
    )


@pytest.mark.parametrize(
    ("image_side", "sentence_side", "links"),
    [(None, None, None), (-1, -1, ()), (None, -1, ()), (0, None, (Link(0, 0),)), (None, 0, (Link(0, 0),))],
)
def test_null_is_unlabelled_and_minus_one_is_no_partner(
    tmp_path: Path, image_side: int | None, sentence_side: int | None, links: object
) -> None:
    (draft,) = read(tmp_path, {"test": [[[["i0", image_side]], [["a", sentence_side]], {}]]})
    assert draft.links == links


def test_an_image_without_row_goes_and_links_are_renumbered(tmp_path: Path) -> None:
    images = [["lost", 0], ["i1", 1], ["i0", 0]]
    outcomes = read(tmp_path, {"train": [[images, [["a", 0], ["b", 1]], {}]]})
    draft = outcomes[0]
    assert uris_of(draft) == ("row:11", "row:10")
    assert draft.links == (Link(0, 1), Link(1, 0))
    assert names(outcomes[1:]) == ["train-0 feature-missing"]


def test_links_that_lead_nowhere_go(tmp_path: Path) -> None:
    outcomes = read(tmp_path, {"train": [[[["i0", 5]], [["a", 0], ["b", -2], ["c", 1]], {}]]})
    assert outcomes[0].links == (Link(0, 0),)
    assert names(outcomes[1:]) == ["train-0 bad-link"] * 3


def test_an_id_of_the_meta_data_is_used_unless_one_before_has_it(tmp_path: Path) -> None:
    def document(meta: Any) -> list[Any]:
        return [[["i0", -1]], [["a", -1]], meta]

    metas = [{"id": "x"}, {"id": "same"}, {"id": 7}, "y", None, {"other": 1}, {"id": ""}]
    corpus = {
        "train": [document(meta) for meta in metas],
        "test": [document({"id": "same"}), [[["i0", -1]], [["a", -1]]]],
    }
    expected = ["x", "same", "7", "y", "train-4", "train-5", "train-6", "test-0", "test-1"]
    assert names(read(tmp_path, corpus)) == expected


@pytest.mark.parametrize(
    "record",
    [7, [], [[]], [7, []], [[["i0"]], []], [[["i0", "0"]], []], [[], [[7, 0]]], [[], ["a"]], [[["i0", True]], []]],
)
def test_records_of_another_form(tmp_path: Path, record: Any) -> None:
    good = [[["i0", -1]], [["a", -1]], {}]
    assert names(read(tmp_path, {"train": [record, good]})) == ["train-0 broken-record", "train-1"]
