"""An image whose address cannot be used is a failure row of its own: its document keeps its other images and its text.

Records go as far as settled documents, without Beam; every document and row must have a digest.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_files import write_tar
from PIL import Image
from published import read_source

from newsroom.search.reader import documents_of
from pipelines.config import recipe
from pipelines.documents.rules import SettledDocument
from pipelines.images.inspect import copy_packs
from pipelines.images.obtain import ImageAccess
from pipelines.shards.writing import content_digest
from pipelines.sources.corpora.compose import INTERLEAVED_SCHEMA
from pipelines.sources.datasets.corpora import CorpusSource
from pipelines.sources.datasets.documents import DocumentsSource
from pipelines.sources.source import find_inputs, image_root
from schemas.failures import Failure
from schemas.lake import Lake

NOT_TEXT: list[Any] = [None, 17, {"a": 1}, ["a.png"], True, float("nan")]
ODD: list[str] = [
    "ftp://h.example/a.png", "data:image/png;base64,AAAA", "javascript:void(0)", "row:3", "row:x", "a\0b.png", "", " ",
    "http://", "http:///a.png", "https://[", "HTTP://[/x.png", "mailto:a@h.example", "file:///etc/passwd",
    "//h.example/a.png", "../../etc/passwd", "/etc/passwd", "x" * 9000, "unusable:x", "a!/b!/c", "x.parquet!/a/0",
    "\ud800.png",
]  # fmt: skip
GOOD = "good.png"


@pytest.fixture
def settled(tmp_path: Path) -> Iterator[Callable[[Any], tuple[list[Any], list[Failure]]]]:
    """Return what gives the documents of a source with their images, and the failures."""
    Image.effect_noise((40, 30), 50).convert("RGB").save(tmp_path / GOOD)

    def read(source: Any) -> tuple[list[Any], list[Failure]]:
        source, config = find_inputs(source, Path), recipe("documents")
        access = ImageAccess(
            http=config.http,
            raw=Lake.at(str(tmp_path / "lake")).raw,
            copies=copy_packs(Lake.at(str(tmp_path / "lake")), config.images, config.dedupe.fingerprint),
            files=image_root(source),
            config=config.images,
            fingerprint=config.dedupe.fingerprint,
        )
        found = list(documents_of(read_source(source), config.documents, access))
        assert all(content_digest(each.document if isinstance(each, SettledDocument) else each) for each in found)
        failures = [each for each in found if isinstance(each, Failure)]
        return [each.document for each in found if isinstance(each, SettledDocument)], failures

    yield read


Settle = Callable[[Any], tuple[list[Any], list[Failure]]]


def check(documents: list[Any], failures: list[Failure], count: int) -> None:
    """Assert that each document has its good image, and one row for its other one."""
    assert len(documents) == count, failures
    for document in documents:
        assert [image.source.rpartition("/")[2] for image in document.images] in ([GOOD], ["1"], ["2"])
        assert [link.image for link in document.links or ()] in ([], [0])
        assert document.sentences
    assert sorted((row.record_id, row.image) for row in failures) == sorted((each.id, 0) for each in documents)
    assert {str(failure.stage) for failure in failures} == {"images"}
    assert all(failure.message.isprintable() and len(failure.message) < 20_000 for failure in failures)


@pytest.mark.parametrize("name", ["path", "url"])
def test_in_own_documents(name: str, settled: Settle, tmp_path: Path) -> None:
    odd = [address for address in (*ODD, *NOT_TEXT) if (name, address) != ("url", "")]
    images: list[Any] = [{name: address} for address in odd]
    images += [{}, "a.png", {"path": GOOD, "url": "http://h.example/"}, {"path": GOOD, "date": "soon"}]
    images += [{"path": GOOD, "after_sentence": place} for place in (7, -1, 0.5, True, 10**30, "x")]
    lines = [
        {"id": f"d{n}", "sentences": ["One.", "Two."], "images": [image, {"path": GOOD}], "links": [[0, 1]]}
        for n, image in enumerate(images)
    ]
    (tmp_path / "documents.jsonl").write_text("\n".join(map(json.dumps, lines)))
    check(*settled(DocumentsSource(documents=str(tmp_path))), len(lines))


def test_in_mmc4(settled: Settle, tmp_path: Path) -> None:
    lines = [
        {"text_list": ["One.", "Two."], "image_info": [image, good], "similarity_matrix": [[0.5, 0.25], [0.1, 0.2]]}
        for address in (*ODD, *NOT_TEXT)
        for good in [{"image_name": GOOD, "matched_text_index": 1, "matched_sim": 0.2}]
        for image in [{"image_name": address, "matched_text_index": 0, "matched_sim": 0.5}]
    ]
    for each in ("a.png", None, 3):
        lines.append(lines[0] | {"image_info": [each, lines[0]["image_info"][1]]})
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    documents, failures = settled(CorpusSource(format="mmc4", documents=(str(tmp_path),), images=str(tmp_path)))
    check(documents, failures, len(lines))
    for document in documents:
        assert [(link.sentence, link.image) for link in document.given.links] == [(1, 0)]
        assert document.given.similarities == (0.1, 0.2)


TEXTS = [each for each in ODD if each.isascii()]


@pytest.mark.parametrize(
    ("form", "rest", "texts"), [("obelics", [None], [None, None, "One."]), ("hf", [], ["One.", "Two."])]
)
def test_in_tables(form: Any, rest: list[None], texts: list[str | None], settled: Settle, tmp_path: Path) -> None:
    rows = [{"images": [odd, GOOD, *rest], "texts": texts} for odd in TEXTS if odd or form == "obelics"]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    check(*settled(CorpusSource(format=form, documents=(str(tmp_path),))), len(rows))


def test_in_rows_of_nemo_curator(settled: Settle, tmp_path: Path) -> None:
    odd = [{"path": each} for each in (*ODD, 17, ["x"], True)] + [{}, {"uri": None}, {"path": GOOD, "frame_index": "x"}]
    odd += [{"path": "a.tar", "member": 3}, {"path": "a", "byte_offset": -1, "byte_size": 4}]
    rows = []
    for number, source in enumerate(odd):
        row = {"sample_id": f"{number}", "position": 0, "modality": "image"}
        rows += [
            row | {"source_ref": json.dumps(source)},
            row | {"position": 1, "source_ref": json.dumps({"path": GOOD})},
            row | {"position": 2, "modality": "text", "text_content": "One. Two."},
        ]
    pq.write_table(pa.Table.from_pylist(rows, schema=INTERLEAVED_SCHEMA), tmp_path / "a.parquet")
    check(*settled(CorpusSource(format="interleaved", documents=(str(tmp_path),))), len(odd))


def test_in_documents_of_a_tar(settled: Settle, tmp_path: Path) -> None:
    files: dict[str, bytes] = {}
    odd = [each for each in (*ODD, 17, {"a": 1}, True) if each != GOOD]
    for number, token in enumerate(odd):
        about = {"texts": [None, None, "One. Two."], "images": [token, GOOD, None]}
        files |= {f"d{number}.json": json.dumps(about).encode()}
    files[GOOD] = (tmp_path / GOOD).read_bytes()
    write_tar(tmp_path / "a.tar", files)
    documents, failures = settled(CorpusSource(format="webdataset", documents=(str(tmp_path / "a.tar"),)))
    check(documents, [failure for failure in failures if failure.record_id != "a/good"], len(odd))


def test_capitals_and_absolute_paths(tmp_path: Path, settled: Settle) -> None:
    inside, linked = tmp_path / "own", tmp_path / "linked"
    inside.mkdir()
    linked.symlink_to(inside)
    (inside / GOOD).write_bytes((tmp_path / GOOD).read_bytes())
    images = [{"path": str(inside / GOOD)}, {"path": str(linked / GOOD)}, {"path": str(tmp_path / GOOD)}]
    images.append({"url": "HTTPS://[/x.png"})
    (inside / "documents.jsonl").write_text(json.dumps({"id": "d", "sentences": ["One."], "images": images}))
    for folder in (inside, linked):
        (document,), failures = settled(DocumentsSource(documents=str(folder)))
        assert [image.source for image in document.images] == [str(inside / GOOD), str(linked / GOOD)]
        assert [(each.image, str(each.reason)) for each in failures] == [(2, "forbidden"), (3, "invalid-url")]
