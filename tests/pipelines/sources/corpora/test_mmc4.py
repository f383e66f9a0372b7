"""MMC4 as it is published; the shard is written by hand from the corpus's own description of its fields."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from candidates import candidate_of, names, parted, sources_of, uris_of

from pipelines.shards.writing import content_digest
from pipelines.sources.datasets.corpora import CorpusSource
from pipelines.sources.records import CandidateDocument
from pipelines.sources.source import find_inputs
from schemas.documents import Document, Given, GivenLink, ImageRef, Provenance, Sentence

FIT: dict[str, Any] = {
    "image_info": [
        {
            "face_detections": None,
            "image_name": "b9040a0dbb22.jpg",
            "matched_sim": 0.27694183588027954,
            "matched_text_index": 2,
            "raw_url": "http://cars.example/90.jpg",
        },
        {
            "face_detections": [[0.1, 0.2, 0.3, 0.4]],
            "image_name": "db1c21bc8474.jpg",
            "matched_sim": 0.3234919607639313,
            "matched_text_index": 1,
            "raw_url": "http://cars.example/91.jpg",
        },
    ],
    "similarity_matrix": [
        [0.24363446235656738, 0.31758785247802734, 0.27694183588027954],
        [0.2233106791973114, 0.3234919607639313, 0.26118797063827515],
    ],
    "text_list": ["Lock the door.", "Press the switch.", "All doors lock."],
    "url": "http://cars.example/48.html",
    "could_have_url_duplicate": 0,
}


def read(source: CorpusSource, path: Path) -> tuple[list[CandidateDocument], list[str]]:
    filled = CorpusSource(**{name: getattr(source, name) for name in source.__slots__} | {"documents": (str(path),)})
    drafts, failures = parted(find_inputs(filled, Path).read())
    return drafts, names(failures)


def zipped(folder: Path, *records: dict[str, Any]) -> Path:
    """Write a shard as it is downloaded."""
    with zipfile.ZipFile(folder / "docs_no_face_shard_0_v2.jsonl.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("docs_no_face_shard_0_v2.jsonl", "\n".join(map(json.dumps, records)))
    return folder


def test_a_published_shard(tmp_path: Path) -> None:
    (draft,), failures = read(CorpusSource(format="mmc4", language="en"), zipped(tmp_path, FIT))
    assert not failures
    assert draft == candidate_of(
        id="docs_no_face_shard_0_v2.jsonl:1",
        dataset="mmc4",
        sentences=(Sentence("Lock the door."), Sentence("Press the switch."), Sentence("All doors lock.")),
        image_uris=("http://cars.example/90.jpg", "http://cars.example/91.jpg"),
        links=None,
        provenance=Provenance("mmc4", "docs_no_face_shard_0_v2.jsonl:1", "http://cars.example/48.html"),
        language="en",
        given=Given(
            (GivenLink(2, 0, 0.27694183588027954), GivenLink(1, 1, 0.3234919607639313)),
            (
                0.24363446235656738, 0.2233106791973114, 0.31758785247802734, 0.3234919607639313,
                0.27694183588027954, 0.26118797063827515,
            ),
        ),
    )  # fmt: skip


def test_what_is_left_out_leaves_the_given_links_in_order(tmp_path: Path) -> None:
    record = FIT | {"text_list": ["Lock the door.", "  ", "All doors lock."]}
    no_address = [{**FIT["image_info"][0], "raw_url": None}, FIT["image_info"][1] | {"matched_text_index": 2}]
    (draft,), failures = read(CorpusSource(), zipped(tmp_path, record | {"image_info": no_address}))
    assert [sentence.text for sentence in draft.sentences] == ["Lock the door.", "All doors lock."]
    address, other = uris_of(draft)
    assert (address.startswith("unusable:missing-field:"), other) == (True, "http://cars.example/91.jpg")
    assert draft.given == Given(
        (GivenLink(1, 0, 0.27694183588027954), GivenLink(1, 1, 0.3234919607639313)),
        (0.24363446235656738, 0.2233106791973114, 0.27694183588027954, 0.26118797063827515),
    )
    assert failures == ["docs_no_face_shard_0_v2.jsonl:1 empty-sentence"]


def test_a_wrong_assignment_costs_the_assignment_alone(tmp_path: Path) -> None:
    far = FIT | {"image_info": [FIT["image_info"][0] | {"matched_text_index": 3}]}
    thin = FIT | {"similarity_matrix": [[0.1, 0.2, 0.3]]}
    drafts, failures = read(CorpusSource(), zipped(tmp_path, far, thin))
    assert [draft.given for draft in drafts] == [None, None]
    assert failures == ["docs_no_face_shard_0_v2.jsonl:1 bad-link", "docs_no_face_shard_0_v2.jsonl:2 broken-record"]


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity", "1e400", "1e39", "null", '"0.5"', "true", "[]"])
def test_a_similarity_that_is_no_number_costs_the_assignment_alone(odd: str, tmp_path: Path) -> None:
    near = json.dumps(FIT).replace("0.27694183588027954, ", f"{odd}, ", 1)
    matrix = json.dumps(FIT).replace("0.24363446235656738", odd)
    (tmp_path / "a.jsonl").write_text(f"{near}\n{matrix}\n{json.dumps(FIT)}\n")
    drafts, failures = read(CorpusSource(), tmp_path)
    assert near != json.dumps(FIT) != matrix
    assert all(content_digest(settled(draft)) for draft in drafts)
    assert [draft.given is None for draft in drafts] == [odd != "null", True, False]
    assert failures == ["a.jsonl:1 broken-record"] * (odd != "null") + ["a.jsonl:2 broken-record"]


def settled(draft: CandidateDocument) -> Document:
    images = tuple(ImageRef(uri, uri) for uri in uris_of(draft))
    return Document(draft.id, draft.dataset, draft.sentences, images, draft.links, draft.provenance, given=draft.given)


def test_bad_records_and_repeats(tmp_path: Path) -> None:
    shard = tmp_path / "docs_shard_7_v3.jsonl"
    lines = ["{", json.dumps({"url": "u"}), json.dumps(FIT | {"could_have_url_duplicate": 1}), json.dumps(FIT)]
    shard.write_text("\n".join(lines))
    drafts, failures = read(CorpusSource(skip_repeats=True), shard)
    assert [draft.id for draft in drafts] == ["docs_shard_7_v3.jsonl:4"]
    assert failures == [
        "docs_shard_7_v3.jsonl:1 broken-record",
        "docs_shard_7_v3.jsonl:2 missing-field",
        "docs_shard_7_v3.jsonl:3 duplicate-record",
    ]


def test_shards_of_one_name_in_several_folders(tmp_path: Path) -> None:
    for folder in ("a", "b/c"):
        (tmp_path / folder).mkdir(parents=True)
        zipped(tmp_path / folder, FIT, {"text_list": 3})
    (tmp_path / "a/x.jsonl").write_text(json.dumps(FIT))
    drafts, failures = read(CorpusSource(), tmp_path)
    name = "docs_no_face_shard_0_v2.jsonl"
    assert [draft.id for draft in drafts] == [f"a/{name}:1", "a/x.jsonl:1", f"b/c/{name}:1"]
    assert failures == [f"a/{name}:2 broken-record", f"b/c/{name}:2 broken-record"]


def test_downloaded_pictures_are_found_by_their_names(tmp_path: Path) -> None:
    (draft,), _ = read(CorpusSource(images=str(tmp_path)), zipped(tmp_path, FIT))
    assert uris_of(draft) == ("b9040a0dbb22.jpg", "db1c21bc8474.jpg")
    assert sources_of(draft) == ("http://cars.example/90.jpg", "http://cars.example/91.jpg")
