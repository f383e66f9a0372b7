"""Corpora and published files to versions: what they say of documents and pictures is what the shards hold.

What each source should read is worked out by hand in its own tests; here its documents meet pictures and Beam. Their
documents share pictures, and each is a shard: training reads every picture of every document.
"""

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builds import PLAIN, build_of, by_source, documents_of, quiet
from candidates import uris_of
from corpus_files import jpeg, write_tar, write_warc
from files_of import as_interleaved, draw_documents
from published import SETTINGS, candidates_of, config_of, draw_all
from shared_pictures import SEVERAL, check_reading

from pipelines.run import build_dataset
from pipelines.sources.corpora.compose import extras_of
from schemas.document_rows import to_row
from schemas.documents import Document, Given, GivenLink, ImageRef, Link, Provenance, Role, Sentence, Split
from schemas.lake import Lake
from schemas.messages import BuildError
from schemas.overrides import override

WORDS = "Cut the boards to the right length with a sharp saw, and take your time, for this cannot be undone later."
DOCUMENTS = [
    Document(
        id=f"doc-{number}",
        dataset="before",
        sentences=(Sentence("Cut.", Role.BODY), Sentence("Sand them. Twice."), Sentence("Glue.", Role.CAPTION)),
        images=(ImageRef(f"{number}a", f"https://h.example/{number}/a.jpg"), ImageRef(f"{number}b", "b.jpg")),
        links=(Link(2, 0), Link(0, 1)) if number else None,
        provenance=Provenance("before", f"record-{number}", f"https://h.example/{number}", "CC0"),
        language="de",
        split=Split.VAL if number == 1 else Split.TRAIN,
        after_sentence=(3, 1),
        given=Given((GivenLink(2, 0, 0.5), GivenLink(1, 1, None)), (0.25, 0.125, 0.5, 0.0, 1.0, 0.75)),
    )
    for number in range(6)
]  # fmt: skip


def as_mmc4(folder: Path) -> None:
    for part, documents in enumerate((DOCUMENTS[:3], DOCUMENTS[3:])):
        lines, pictures = [], {}
        for document in documents:
            row = json.loads(json.dumps(to_row(document)))
            extras = extras_of(row, {image.hash: {"licence": "CC0", "metadata": None} for image in document.images})
            shown = [{"image_name": f"{image.hash}.jpg", "raw_url": image.source} for image in document.images]
            pictures |= {f"{image.hash}.jpg": jpeg(int(image.hash, 16) % 90) for image in document.images}
            texts = [sentence["text"] for sentence in row["sentences"]]
            lines.append(json.dumps({"text_list": texts, "image_info": shown, "multilink": extras, "url": "u"}))
        (folder / f"docs-train-{part:05d}-of-00002.jsonl").write_text("\n".join(lines))
        write_tar(folder / f"images-train-{part:05d}-of-00002.tar", pictures)


def test_records_of_one_id_and_other_content_count_as_failed(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(jpeg(1))
    lines = [json.dumps({"id": "same", "sentences": [text], "images": [{"path": "a.png"}]}) for text in "AABC"]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(BuildError, match="documents: 2 of 4 failed, more than max_failure_share"):
        build_of("documents", tmp_path / "lake", f"source.documents={tmp_path}", *PLAIN, "max_failure_share=0.4")
    assert Lake.at(str(tmp_path / "lake")).versions("documents") == []
    summary = build_of("documents", tmp_path / "lake", f"source.documents={tmp_path}", *PLAIN)
    assert summary.manifest.failures == {"duplicate-record": 1, "id-taken": 2}


def test_a_directory_of_warc_files_becomes_a_version(tmp_path: Path) -> None:
    (tmp_path / "crawl").mkdir()
    for number in range(3):
        site = f"https://site-{number}.example"
        text = "".join(f"<p>{WORDS} Number {each}.</p>" for each in range(3))
        body = f"<article><h1>A shelf</h1>{text}<img src='/1.jpg'><p>{WORDS}</p></article>"
        page = f"<html lang=en><body>{body}</body></html>".encode()
        shown = {f"{site}/page": ("text/html", page), f"{site}/1.jpg": ("image/jpeg", jpeg(min(number, 1)))}
        write_warc(tmp_path / "crawl" / f"{number}.warc.gz", shown)
    lake = Lake.at(str(tmp_path / "lake"))
    summary = build_of("web", lake, f"source.documents={tmp_path / 'crawl'}", *PLAIN, *SEVERAL)
    rows, widths = documents_of(summary), {row["hash"]: row["width"] for row in by_source(summary).values()}
    assert rows.keys() == {f"https://site-{number}.example/page" for number in range(3)}
    for number in range(3):
        row = rows[f"https://site-{number}.example/page"]
        assert len(row["sentences"]) == 8
        assert (row["after_sentence"], row["language"]) == ([7], "en")
        assert row["images"][0]["source"] == f"https://site-{number}.example/1.jpg"
        assert widths[row["images"][0]["hash"]] == 60 + min(number, 1)
    assert check_reading(lake, summary.manifest) > 0


def test_a_picture_that_is_embedded_goes_by_the_address_it_came_from(tmp_path: Path) -> None:
    shards, listed = tmp_path / "shards", tmp_path / "takedowns.txt"
    shards.mkdir()
    as_mmc4(shards)
    listed.write_text("url: https://h.example/2/a.jpg\n")
    summary = build_of("mmc4", tmp_path / "lake", f"source.documents={shards}", *PLAIN, f"takedown_list={listed}")
    assert summary.manifest.failures == {"taken-down": 1}
    row = documents_of(summary)["doc-2"]
    assert [image["source"] for image in row["images"]] == ["b.jpg"]
    assert row["given_links"] == [{"sentence": 1, "image": 0, "similarity": None}]
    assert row["given_similarities"] == [0.125, 0.0, 0.75]


def test_interleaved_rows_share_pictures(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    source = as_interleaved(draw_documents(6, are_shared=True), tmp_path / "rows")
    lake = Lake.at(str(tmp_path / "lake"))
    manifest = build_of("interleaved", lake, f"source.documents={source}", *PLAIN, *SEVERAL).manifest
    assert sum(split.documents for split in manifest.splits.values()) == 6
    assert check_reading(lake, manifest) > 0


def test_released_feature_rows_are_shared(tmp_path: Path) -> None:
    documents = [[[["i0", 0]], [[f"Step {n}.", 0]], {"id": str(n)}] for n in range(6)]
    (tmp_path / "docs.json").write_text(json.dumps({"train": documents, "val": documents[:0], "test": []}))
    (tmp_path / "id2row.json").write_text(json.dumps({"i0": 0}))
    np.save(tmp_path / "features.npy", np.ones((1, 4), np.float32))
    files = {"documents": "docs.json", "id2row": "id2row.json", "features": "features.npy"}
    settings = [f"source.{name}={tmp_path / file}" for name, file in files.items()]
    lake = Lake.at(str(tmp_path / "lake"))
    manifest = build_of("multi-retrieval", lake, *settings, "features.sentences=", *SEVERAL).manifest
    assert manifest.splits["train"].documents == 6
    assert check_reading(lake, manifest, has_pictures=False) == 5


ALIKE = ("story-sis", "dii-stress")  # read by the source of `story-dii`, to the same columns


@pytest.mark.parametrize(
    "dataset", [pytest.param(name, marks=[pytest.mark.trial] * (name in ALIKE)) for name in sorted(SETTINGS)]
)
def test_what_is_read_is_what_the_shards_hold(dataset: str, tmp_path: Path) -> None:
    root, lake = tmp_path / "images", Lake.at(str(tmp_path / "lake"))
    root.mkdir()
    drafts = candidates_of(config_of(dataset, str(root)))
    assert drafts
    draw_all(drafts, root, different=max(len(uris_of(draft)) for draft in drafts))
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        archive.add(root, arcname=".")
    config = override(config_of(dataset, str(tmp_path / "images.tar")), SEVERAL)
    summary = build_dataset(config, lake=lake, say=quiet)
    built = documents_of(summary)
    assert built.keys() == {draft.id for draft in drafts if draft.sentences}
    times = Counter(draft.id for draft in drafts)
    for draft in (draft for draft in drafts if times[draft.id] == 1 and draft.sentences):
        row = built[draft.id]
        assert row["dataset"] == dataset
        assert [(sentence["text"], sentence["role"]) for sentence in row["sentences"]] == [
            (sentence.text, sentence.role) for sentence in draft.sentences
        ]
        assert [image["source"] for image in row["images"]] == list(uris_of(draft))
        assert links_of(row) == draft.links
        assert draft.split in (None, row["split"])
    assert len(built) > 1 and check_reading(lake, summary.manifest) > 0


def links_of(row: dict[str, Any]) -> tuple[Link, ...] | None:
    """Return the links of a row of a documents part."""
    if row["links"] is None:
        return None
    return tuple(
        Link(link["sentence"], link["image"], tuple((r["name"], r["value"]) for r in link["relations"]))
        for link in row["links"]
    )
