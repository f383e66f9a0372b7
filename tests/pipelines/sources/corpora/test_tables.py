"""OBELICS, NeMo Curator's rows and Hugging Face's data sets; the files are written by `datasets` where it can."""

import base64
import hashlib
import io
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from candidates import after_of, metadata_of, names, parted, sources_of, uris_of
from corpus_files import flat as picture
from corpus_files import tiff_of
from PIL import Image
from pyarrow import csv

from pipelines.embedded import read_picture
from pipelines.named_files import FileRejected
from pipelines.sources.corpora.compose import INTERLEAVED_SCHEMA
from pipelines.sources.datasets.corpora import CorpusSource, Format
from pipelines.sources.records import CandidateDocument
from pipelines.sources.source import find_inputs, image_root
from pipelines.tables import read_batches, read_cell
from schemas.documents import Link, Split


def read(path: Path, form: Format, **settings: Any) -> tuple[list[CandidateDocument], list[str], str]:
    """Return documents, failures, and the root of pictures."""
    source = find_inputs(CorpusSource(format=form, documents=(str(path),), **settings), Path)
    drafts, failures = parted(source.read())
    return drafts, names(failures), image_root(source)


def texts(draft: CandidateDocument) -> list[str]:
    return [sentence.text for sentence in draft.sentences]


def bytes_of(draft: CandidateDocument, root: str) -> list[bytes]:
    return [read_picture(root, uri, max_bytes=10**6) for uri in uris_of(draft)]


def obelics(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows as the corpus is published: by `datasets`, in Parquet."""
    features = datasets.Features(
        {
            "images": datasets.List(datasets.Value("string")),
            "metadata": datasets.Value("string"),
            "general_metadata": datasets.Value("string"),
            "texts": datasets.List(datasets.Value("string")),
        }
    )
    path = folder / "obelics-train-00000-of-01439.parquet"
    datasets.Dataset.from_list(list(rows), features=features).to_parquet(str(path))
    return path


PAGE = {
    "images": ["https://h.example/0.jpg", None, "https://h.example/1.jpg", None],
    "metadata": json.dumps([{"src": "https://h.example/0.jpg", "alt_text": "A  shelf"}, None, {"src": "x"}, None]),
    "general_metadata": json.dumps({"url": "https://h.example/page.html", "warc_filename": "x"}),
    "texts": [None, "Cut the boards. Sand them.\n\nThen rest.", None, "Glue them."],
}


def test_obelics(tmp_path: Path) -> None:
    obelics(tmp_path, [PAGE, PAGE | {"texts": [None]}, PAGE | {"images": [None] * 4}])
    (draft,), failures, _ = read(tmp_path, "obelics", language="en")
    assert texts(draft) == ["Cut the boards.", "Sand them.", "Then rest.", "Glue them."]
    assert (uris_of(draft), after_of(draft)) == (("https://h.example/0.jpg", "https://h.example/1.jpg"), (0, 3))
    assert (draft.provenance.url, metadata_of(draft)[0].caption) == ("https://h.example/page.html", "A shelf")
    assert (draft.links, draft.language, draft.id) == (None, "en", "obelics-train-00000-of-01439.parquet:0")
    assert failures == [
        "obelics-train-00000-of-01439.parquet:1 broken-record",
        "obelics-train-00000-of-01439.parquet:2 too-few-images",
    ]


@pytest.mark.parametrize("broken", ["{", "[1, 2]", "null", '"x"'])
def test_a_description_that_is_broken_costs_no_document(broken: str, tmp_path: Path) -> None:
    obelics(tmp_path, [PAGE | {"metadata": broken, "general_metadata": broken}])
    (draft,), failures, _ = read(tmp_path, "obelics", language="en")
    assert (len(uris_of(draft)), metadata_of(draft), draft.provenance.url, failures) == (2, (), None, [])


ABOUT = [{"alt_text": "A  shelf", "bytes": 700}, None, {"alt_text": None, "bytes": 701}, None]
GENERAL = {"id": "x", "url": "https://h.example/page.html"}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("SHARD.PARQUET", {name: json.dumps(PAGE[name]) for name in ("images", "texts")}),
        ("structs.parquet", {"metadata": ABOUT, "general_metadata": GENERAL}),  # OmniCorpus
        (
            "texts.parquet",
            {"metadata": [value and json.dumps(value) for value in ABOUT], "general_metadata": json.dumps(GENERAL)},
        ),
        ("mint-1t.parquet", {"general_metadata": None, "url": "https://h.example/page.html", "cc_dump": "x"}),
    ],
)
def test_a_page_in_the_forms_of_other_releases(name: str, row: dict[str, Any], tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([PAGE | row]), tmp_path / name)
    (draft,), failures, _ = read(tmp_path / name, "obelics", language="en")
    assert [each and each.caption for each in metadata_of(draft)] == ["A shelf", None]
    assert draft.provenance.url == "https://h.example/page.html"
    assert (len(texts(draft)), after_of(draft), failures) == (4, (0, 3), [])


def curated(folder: Path, rows: Sequence[dict[str, Any]], schema: pa.Schema = INTERLEAVED_SCHEMA) -> Path:
    path = folder / "part-0.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, row_group_size=3)
    return path


def test_rows_of_nemo_curator(tmp_path: Path) -> None:
    (tmp_path / "loose.png").write_bytes(picture(7))
    locator = {"path": "loose.png", "member": None, "byte_offset": None, "byte_size": None, "frame_index": None}
    row = {"sample_id": "doc-1", "modality": "text", "position": 0}
    curated(
        tmp_path,
        [
            row | {"position": 3, "text_content": "Glue them."},
            row | {"position": -1, "modality": "metadata", "text_content": json.dumps({"url": "https://n.example/"})},
            row | {"position": 1, "modality": "image", "binary_content": picture(1), "content_type": "image/png"},
            row | {"position": 2, "modality": "image", "source_ref": json.dumps(locator)},
            row | {"text_content": "Cut the boards. Sand them."},
            row | {"position": 4, "modality": "table", "text_content": "1|2"},
            {"sample_id": "doc-2", "position": 0, "modality": "image"},
        ],
    )
    (draft,), failures, root = read(tmp_path, "interleaved")
    assert (draft.id, texts(draft)) == ("doc-1", ["Cut the boards.", "Sand them.", "Glue them."])
    assert (uris_of(draft), after_of(draft)) == (("part-0.parquet!/binary_content/2", "loose.png"), (2, 2))
    assert bytes_of(draft, root) == [picture(1), picture(7)]
    assert (draft.provenance.url, failures) == ("https://n.example/", ["doc-2 too-few-sentences"])


def test_a_picture_that_was_not_got_costs_its_document_nothing_else(tmp_path: Path) -> None:
    row = {"sample_id": "d", "position": 0, "modality": "text", "text_content": "One."}
    shown = {"sample_id": "d", "modality": "image"}
    curated(
        tmp_path,
        [
            row,
            shown | {"position": 1, "binary_content": picture(1)},
            shown | {"position": 2, "materialize_error": "HTTP 404"},
            shown | {"position": 3, "materialize_error": "HTTP 500", "source_ref": '{"path": "https://h.example/1"}'},
            row | {"position": 4, "text_content": "Two."},
        ],
    )
    (draft,), failures, _ = read(tmp_path, "interleaved")
    assert uris_of(draft) == (
        "part-0.parquet!/binary_content/1",
        "unusable:not-found:materialize_error: HTTP 404",
        "https://h.example/1",
    )
    assert (texts(draft), after_of(draft), failures) == (["One.", "Two."], (1, 1, 1), [])


def test_ranges_of_bytes(tmp_path: Path) -> None:
    pages = tiff_of(10, 20)
    whole = b"head" + picture(1) + picture(2) + pages
    (tmp_path / "blob.bin").write_bytes(whole)
    begin, size = 4 + len(picture(1)), len(picture(2))
    sources: list[dict[str, Any]] = [
        {"path": "blob.bin", "byte_offset": 4, "byte_size": len(picture(1))},
        {"path": "blob.bin", "member": None, "byte_offset": begin, "byte_size": size},
        {"uri": "blob.bin", "offset": begin + size, "size": len(pages), "frame_index": 1},
        {"path": "blob.bin", "byte_offset": len(whole) - 3, "byte_size": 10},
        {"path": "blob.bin", "byte_offset": 4, "byte_size": 0},
    ]
    rows = [
        {"sample_id": "d", "position": n, "modality": "image", "source_ref": json.dumps(source)}
        for n, source in enumerate(sources)
    ]
    curated(tmp_path, [*rows, {"sample_id": "d", "position": 9, "modality": "text", "text_content": "One."}])
    (draft,), _, root = read(tmp_path, "interleaved")
    one, two, frame, beyond, empty = uris_of(draft)
    assert [read_picture(root, uri, max_bytes=10**6) for uri in (one, two)] == [picture(1), picture(2)]
    with Image.open(io.BytesIO(read_picture(root, frame, max_bytes=10**6))) as found:
        assert found.getpixel((3, 3)) == (20, 0, 0)
    with pytest.raises(FileRejected, match="expected 10 bytes at byte"):
        read_picture(root, beyond, max_bytes=10**6)
    assert read_picture(root, empty, max_bytes=10**6) == b""


def test_rows_of_a_sample_that_lie_apart(tmp_path: Path) -> None:
    rows = [
        {"sample_id": sample, "position": position, "modality": "text", "text_content": f"Text {position} of {sample}."}
        if position % 2
        else {"sample_id": sample, "position": position, "modality": "image", "binary_content": picture(position)}
        for position in range(4)
        for sample in ("d", "e", "f")
    ]
    curated(tmp_path, rows)
    drafts, failures, _ = read(tmp_path, "interleaved")
    assert [(draft.id, texts(draft)) for draft in drafts] == [
        (sample, [f"Text 1 of {sample}.", f"Text 3 of {sample}."]) for sample in ("d", "e", "f")
    ]
    assert ([len(uris_of(draft)) for draft in drafts], failures) == ([2, 2, 2], [])


def test_the_newer_form_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "k.tiff").write_bytes(tiff_of(10, 20, 30))
    file = pa.struct([("uri", pa.string()), ("offset", pa.int64()), ("size", pa.int64())])
    fields = [field for field in INTERLEAVED_SCHEMA if field.name not in ("source_ref", "binary_content")]
    schema = pa.schema(
        [*fields, ("source_ref", file), ("source_member", pa.string()), ("source_frame_index", pa.int32())]
    )
    row = {"sample_id": "d", "position": 0, "modality": "text", "text_content": "One."}
    shown = row | {"position": 1, "modality": "image", "source_ref": {"uri": "k.tiff"}, "source_frame_index": 2}
    curated(tmp_path, [row, shown], schema)
    (draft,), _, root = read(tmp_path, "interleaved")
    with Image.open(io.BytesIO(bytes_of(draft, root)[0])) as found:
        assert (found.format, found.getpixel((3, 3))) == ("PNG", (30, 0, 0))


FEATURES = datasets.Features(
    {"id": datasets.Value("int64"), "image": datasets.Image(), "text": datasets.Value("string")}
)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_pairs_of_hugging_face(form: str, tmp_path: Path) -> None:
    rows = [{"id": n, "image": {"bytes": picture(n), "path": None}, "text": f"Picture {n}."} for n in range(100)]
    rows[3] = {"id": 3, "image": None, "text": "No picture."}
    rows[4] = {"id": 4, "image": {"bytes": picture(4), "path": "4.png"}, "text": " "}
    made = datasets.Dataset.from_list(rows, features=FEATURES)
    if form == "arrow":
        datasets.DatasetDict({"test": made}).save_to_disk(str(tmp_path), num_shards={"test": 2})
    else:
        made.to_parquet(str(tmp_path / "test-00000-of-00001.parquet"), batch_size=7)
    drafts, failures, root = read(tmp_path, "hf")
    assert [draft.provenance.record_id for draft in drafts] == [str(n) for n in range(100) if n not in (3, 4)]
    assert [draft.id.rpartition(":")[2] for draft in drafts] == [draft.provenance.record_id for draft in drafts]
    assert {(draft.split, draft.links) for draft in drafts} == {(Split.TEST, (Link(0, 0),))}
    pictures = [picture(int(draft.provenance.record_id)) for draft in drafts]
    assert [bytes_of(draft, root) for draft in drafts] == [[each] for each in pictures]
    assert [failure.rpartition(" ")[2] for failure in failures] == ["too-few-images", "too-few-sentences"]


@pytest.mark.parametrize("has_ids", [False, True])
def test_shards_of_one_name_in_several_folders_are_all_read(has_ids: bool, tmp_path: Path) -> None:
    """`save_to_disk` names the shards of each split alike, and numbers of rows begin anew in each."""
    splits = {}
    for name in ("train", "validation", "test"):
        rows = [{"id": n, "image": {"bytes": picture(n), "path": None}, "text": f"A {n} of {name}."} for n in range(9)]
        made = datasets.Dataset.from_list(rows, features=FEATURES)
        splits[name] = made if has_ids else made.remove_columns("id")
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path))
    found = {draft.id: draft for draft in read(tmp_path, "hf")[0]}
    assert Counter(draft.split for draft in found.values()) == dict.fromkeys((Split.TRAIN, Split.VAL, Split.TEST), 9)
    name = "test/data-00000-of-00001.arrow:7"
    assert found[name].provenance.record_id == ("7" if has_ids else name)
    assert "train/data-00000-of-00001.arrow:7" in found


def test_pages_of_hugging_face(tmp_path: Path) -> None:
    features = datasets.Features(
        {"images": datasets.List(datasets.Image()), "texts": datasets.List(datasets.Value("string"))}
    )
    rows = [
        {"images": [None, {"bytes": picture(1), "path": None}, None], "texts": ["One. Two.", None, "Three."]},
        {"images": [{"bytes": picture(2), "path": None}], "texts": ["One.", "Two."]},
    ]
    datasets.Dataset.from_list(rows, features=features).to_parquet(str(tmp_path / "all.parquet"))
    linked = {"images": [[{"bytes": None, "path": "https://h.example/3.jpg"}]], "texts": [["One."]]}
    pq.write_table(pa.table(linked, schema=features.arrow_schema), tmp_path / "linked.parquet")
    drafts, failures, root = read(tmp_path, "hf", keep_splits=False)
    assert [(texts(draft), after_of(draft)) for draft in drafts] == [
        (["One. Two.", "Three."], (1,)), (["One.", "Two."], ()), (["One."], ())
    ]  # fmt: skip
    assert [bytes_of(draft, root) for draft in drafts[:2]] == [[picture(1)], [picture(2)]]
    assert uris_of(drafts[2]) == ("https://h.example/3.jpg",)
    assert (failures, {draft.split for draft in drafts}) == ([], {None})


@pytest.mark.parametrize("shape", ["bytes", "struct", "list"])
def test_pictures_are_not_read_to_see_that_they_are_there(shape: str, tmp_path: Path) -> None:
    """Shards whose pictures were overwritten with zeros give the same documents."""
    held = [b"%d" % n * 3_000_000 for n in range(9)]
    structs = [{"bytes": data, "path": f"{n}.png"} for n, data in enumerate(held)]
    values = {"bytes": held, "struct": structs, "list": [[each, each] for each in structs]}[shape]
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"image": values, "text": [f"Text {n}." for n in range(9)]}),
        path,
        compression="none",
        use_dictionary=False,
    )
    before = read(tmp_path, "hf")
    assert len(before[0]) == 9
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert chunk.path_in_schema.endswith("bytes" if shape != "bytes" else "image")
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset)
        file.write(bytes(chunk.total_compressed_size))
    assert read(tmp_path, "hf") == before


def test_rows_come_by_bytes(tmp_path: Path) -> None:
    images = [bytes([n]) * 3_000_000 for n in range(40)]
    columns = {"image": pa.array(images, pa.large_binary()), "text": pa.array(["a" * 10] * 40, pa.large_string())}
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=40, use_dictionary=False)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "a.arrow"):
        batches = list(read_batches(str(tmp_path / name), ["image", "text"]))
        assert [first for first, _ in batches] == list(range(40))  # each is longer than is read at once
        (texts_alone,) = read_batches(str(tmp_path / name), ["text"])
        assert texts_alone[1].num_rows == 40
        assert [read_cell(str(tmp_path / name), "image", row) for row in (39, 2)] == [images[39], images[2]]


def test_columns_that_are_not_there_are_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"no table")
    for form in ("obelics", "interleaved", "hf"):
        assert read(tmp_path, form)[:2] == ([], ["x.parquet broken-record", "y.parquet broken-record"])


LISTED = [("https://h.example/0.jpg", "A shelf, of oak."), ("https://h.example/1.jpg", "A vise.")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.csv", 'url,caption\nhttps://h.example/0.jpg,"A shelf, of oak."\nhttps://h.example/1.jpg,A vise.\n'),
        ("list.tsv", "caption\tURL\nA shelf, of oak.\thttps://h.example/0.jpg\nA vise.\thttps://h.example/1.jpg\n"),
        ("list.jsonl", "\n".join(json.dumps({"url": url, "TEXT": text}) for url, text in LISTED)),
        ("list.json", json.dumps([{"image_url": url, "text": text} for url, text in LISTED])),
    ],
)
def test_lists_of_addresses_and_texts(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    drafts, failures, _ = read(tmp_path, "tables")
    assert [(uris_of(draft)[0], *texts(draft)) for draft in drafts] == LISTED
    assert (failures, drafts[0].links) == ([], (Link(0, 0),))


def test_rows_of_a_list_that_lack_something(tmp_path: Path) -> None:
    rows = ["url,caption", "https://h/0.jpg,", ",No address", "https://h/2.jpg,Good", '"https://h/3.jpg,Stray', "x"]
    (tmp_path / "a.csv").write_text("\n".join([*rows, "https://h/6.jpg,Good again"]))
    drafts, failures, _ = read(tmp_path, "tables")
    assert [texts(draft) for draft in drafts] == [["Good"], ["Good again"]]
    assert failures == [
        "a.csv:2 too-few-sentences", "a.csv:3 too-few-images", "a.csv:5 broken-record", "a.csv:6 broken-record",
    ]  # fmt: skip
    for content in ("https://h/0.jpg,A cat\n", ""):
        (tmp_path / "a.csv").write_text(content)
        assert read(tmp_path, "tables")[1] == ["a.csv broken-record"]


@pytest.mark.parametrize("has_bytes", [True, False])
@pytest.mark.parametrize("form", ["hf", "tables"])
def test_img2dataset(form: Format, has_bytes: bool, tmp_path: Path) -> None:
    states = [("success", None), ("failed_to_download", "HTTP Error 404: Not Found"), ("failed_to_resize", "truncated")]
    rows = [
        {"url": f"https://h.example/{n}.jpg", "caption": f"Picture {n}.", "key": f"00000000{n}", "status": status,
         "error_message": message, "width": 40}
        for n, (status, message) in enumerate(states)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    if has_bytes:
        table = table.append_column("jpg", pa.array([picture(0), None, None]))
    pq.write_table(table, tmp_path / "00000.parquet")
    (tmp_path / "00000_stats.json").write_text("{}")
    (draft,), failures, root = read(tmp_path, form)
    assert (draft.id, texts(draft), draft.links) == ("00000.parquet:000000000", ["Picture 0."], (Link(0, 0),))
    assert draft.provenance.url == "https://h.example/0.jpg"
    if has_bytes:
        assert (bytes_of(draft, root), sources_of(draft)) == ([picture(0)], ("https://h.example/0.jpg",))
    else:
        assert (uris_of(draft), sources_of(draft)) == (("https://h.example/0.jpg",), ())
    assert failures == ["00000.parquet:1 not-found", "00000.parquet:2 corrupt-image"]


def test_folders_of_pictures_with_their_texts(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "0.png").write_bytes(picture(len(split)))
        (tmp_path / split / "metadata.csv").write_text(f"file_name,text\n0.png,A {split} picture\n")
    drafts, failures, root = read(tmp_path, "tables")
    assert {draft.split: (texts(draft), bytes_of(draft, root)) for draft in drafts} == {
        Split.TRAIN: (["A train picture"], [picture(5)]),
        Split.TEST: (["A test picture"], [picture(4)]),
    }
    assert not failures
    drafts, _, _ = read(tmp_path, "tables", images=str(tmp_path / "train"))
    assert {uris_of(draft) for draft in drafts} == {("0.png",)}


def test_conversations(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A vise."}]
    (tmp_path / "llava.json").write_text(json.dumps([{"id": "c-1", "image": "coco/1.png", "conversations": turns}]))
    (draft,), failures, _ = read(tmp_path, "tables")
    assert (draft.id, texts(draft), uris_of(draft), failures) == ("c-1", ["A vise."], ("coco/1.png",), [])


@pytest.mark.parametrize("begin", ["", "data:image/png;base64,"])
def test_pictures_in_base64(begin: str, tmp_path: Path) -> None:
    held = [begin + base64.b64encode(picture(n)).decode() for n in range(3)]
    lists = {"image": [*held[:2], begin + "A" * 101], "text": ["One.", "Two.", "Three."]}
    pq.write_table(pa.table(lists), tmp_path / "a.parquet")
    drafts, failures, root = read(tmp_path / "a.parquet", "hf")
    assert [bytes_of(draft, root) for draft in drafts[:2]] == [[picture(0)], [picture(1)]]
    with pytest.raises(FileRejected):
        bytes_of(drafts[2], root)
    (tmp_path / "b.csv").write_text(f'image,text\n"{held[0]}",One.\n')
    (draft,), failures, _ = read(tmp_path / "b.csv", "tables")
    assert uris_of(draft)[0].startswith("unusable:broken-record:") and not failures


@pytest.mark.parametrize("form", ["hf", "tables"])
def test_long_names_of_pictures_are_no_base64(form: Format, tmp_path: Path) -> None:
    digest = hashlib.sha512(b"0").hexdigest()
    paths = [f"{digest}.png", digest, f"{'folder/' * 20}0.png", f"{'folder/' * 20}0000", f"/9j/{'A' * 120}.jpg"]
    table = pa.table({"image": paths, "text": ["One."] * len(paths)})
    (pq.write_table if form == "hf" else csv.write_csv)(table, tmp_path / ("a.parquet" if form == "hf" else "a.csv"))
    drafts, failures, _ = read(tmp_path, form, images=str(tmp_path))
    assert ([uris_of(draft)[0] for draft in drafts], failures) == (paths, [])


@pytest.mark.parametrize("shape", ["bytes", "struct", "list"])
def test_columns_whose_names_begin_alike(shape: str, tmp_path: Path) -> None:
    shown = [{"bytes": picture(n), "path": None} for n in range(3)]
    images = {"bytes": [each["bytes"] for each in shown], "struct": shown, "list": [[each] for each in shown]}[shape]
    small = [picture(n + 9) for n in range(3)]
    columns = {"image.thumbnail": small, "image.bytes": small, "image": images, "text": ["A.", "B.", "C."]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    drafts, _, root = read(tmp_path, "hf")
    assert [bytes_of(draft, root) for draft in drafts] == [[picture(n)] for n in range(3)]


@pytest.mark.parametrize(("keep_splits", "splits"), [(True, ["train", "val", "test", "test"]), (False, [None] * 4)])
def test_rows_say_their_split_over_the_folder(keep_splits: bool, splits: list[str | None], tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    rows = [f"https://h.example/{n}.jpg,A picture.,{split}" for n, split in enumerate(("train", "Validation", "", "x"))]
    (tmp_path / "test/photos.csv").write_text("\n".join(["url,caption,split", *rows]))
    assert [draft.split for draft in read(tmp_path, "tables", keep_splits=keep_splits)[0]] == splits


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([2, None, None, 7], ["a.parquet:2", "a.parquet:row-1", "a.parquet:row-2", "a.parquet:7"]),
        (["2", "", None, " "], ["a.parquet:2", "a.parquet:row-1", "a.parquet:row-2", "a.parquet:row-3"]),
        (["x", "", "y", "3"], ["x", "a.parquet:row-1", "y", "a.parquet:3"]),
    ],
)
def test_rows_without_an_id_among_others(ids: list[Any], expected: list[str], tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"id": ids, "image": list(map(picture, range(4))), "text": ["A."] * 4}), tmp_path / "a.parquet"
    )
    drafts, failures, _ = read(tmp_path, "hf")
    assert ([draft.id for draft in drafts], failures) == (expected, [])


@pytest.mark.parametrize("name", ["text", "url", "id", "other"])
def test_a_column_that_is_read_is_there_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"url,text,id,other,{name}\nhttps://h.example/0.jpg,A.,1,B.,C.\n")
    drafts, failures, _ = read(tmp_path, "tables")
    assert (len(drafts), failures) == ((1, []) if name == "other" else (0, ["a.csv broken-record"]))


def test_shards_in_the_cache_of_hugging_face_are_links(tmp_path: Path) -> None:
    cached = tmp_path / "hub" / "datasets--owner--name"
    data = cached / "snapshots" / "1a2b" / "data"
    for folder in (cached / "blobs", data):
        folder.mkdir(parents=True)
    pq.write_table(pa.table({"image": [picture(7)], "caption": ["One."]}), cached / "blobs" / "c0ffee")
    (data / "train-00000-of-00001.parquet").symlink_to("../../../blobs/c0ffee")
    (tmp_path / "secret.parquet").write_bytes(b"")
    (data / "other.parquet").symlink_to(tmp_path / "secret.parquet")  # leads out of the repository
    for address in (data.parent, data / "train-00000-of-00001.parquet"):
        (draft,), failures, root = read(address, "hf")
        assert (bytes_of(draft, root), failures) == ([picture(7)], [])
