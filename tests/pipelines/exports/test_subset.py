"""A subset is a version like any other, within a larger one, with the rows of its parent unchanged."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builds import quiet
from lakes import World, make_documents, write_lake
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.exports.reading import shards_of
from pipelines.exports.subset import Selection, read_ids, write_subset
from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest, read_manifest, verify
from schemas.messages import UsageError
from schemas.parts import read_part
from schemas.versions import fingerprint


def subset(built: Any, **selection: Any) -> tuple[Manifest, Folder]:
    manifest = write_subset(built.lake, built.manifest, built.folder, Selection(**selection), say=quiet)
    return manifest, built.lake.dataset(manifest.dataset, manifest.version)


def rows(manifest: Manifest, folder: Folder, table: str) -> dict[str, dict[str, Any]]:
    """Return rows with their split, by id or hash in their split."""
    found = {}
    for shard in shards_of(manifest):
        entry = getattr(shard, table)
        with folder.open(entry.path) as stream:
            names = pa.parquet.read_schema(stream).names
        for row in read_part(folder, entry, names).to_pylist():
            found[f"{shard.split}/{row.get('id', row.get('hash'))}"] = row
    return found


def test_a_smaller_share_is_within_a_larger_one_and_rows_are_the_parents(built: Any) -> None:
    documents, images = rows(built.manifest, built.folder, "documents"), rows(built.manifest, built.folder, "images")
    before: set[str] = set()
    for share in (0.3, 0.6, 0.9):
        manifest, folder = subset(built, share=share)
        found = rows(manifest, folder, "documents")
        assert before < found.keys() < documents.keys()
        assert all(row == documents[name] for name, row in found.items())
        shown = {f"{name.split('/')[0]}/{image['hash']}" for name, row in found.items() for image in row["images"]}
        assert rows(manifest, folder, "images") == {name: images[name] for name in shown}
        assert manifest.features == built.manifest.features
        assert list(verify(manifest, folder)) == []
        before = set(found)


def test_the_manifest_names_the_parent_and_counts_what_is_there(built: Any) -> None:
    ids = frozenset(f"d{n:02}" for n in range(24) if n % 2 and n % 3 != 2)
    manifest, folder = subset(built, ids=ids)
    found = rows(manifest, folder, "documents")
    assert {row["id"] for row in found.values()} == ids
    assert manifest.config["subset"] == {"parent": built.reference, "share": 1, "ids": fingerprint(sorted(ids))}
    every = rows(built.manifest, built.folder, "documents")
    for split, (of, there) in product(Split, ((manifest, found), (built.manifest, every))):
        of_split = [row for name, row in there.items() if name.startswith(f"{split}/")]
        told = of.splits[split]
        assert told.documents == len(of_split)
        assert told.images == sum(len(row["images"]) for row in of_split)
        assert told.links == sum(len(row["links"] or ()) for row in of_split)
        assert told.unique_images == len({image["hash"] for row in of_split for image in row["images"]})
    assert built.lake.latest("documents") == built.manifest.version
    assert f"A subset of `{built.reference}`: 100% of listed documents" in folder.read("README.md").decode()
    assert all(entry.rows <= 4 for entry in manifest.files if entry.path.startswith("documents/"))


def test_a_subset_is_made_once_and_of_a_subset_again(built: Any) -> None:
    first, folder = subset(built, share=0.5)
    assert subset(built, share=0.5)[0] == first
    inner = write_subset(built.lake, first, folder, Selection(share=0.25), say=quiet)
    direct, at = subset(built, share=0.25)
    inner_at = built.lake.dataset(inner.dataset, inner.version)
    assert rows(inner, inner_at, "documents") == rows(direct, at, "documents")
    assert inner.version != direct.version


def test_ids_of_a_file_are_a_subset_in_any_order(built: Any, tmp_path: Path) -> None:
    ids = frozenset({"d01", "d04", "d20"})
    file, again = tmp_path / "ids.txt", tmp_path / "again.txt"
    file.write_text("d20\nd01\nd04\n")
    again.write_bytes(b"\xef\xbb\xbfd01\r\nd04\r\n\r\nd20\r\nd01")
    assert read_ids(str(file), built.manifest, built.folder) == ids
    assert read_ids(str(again), built.manifest, built.folder) == ids
    manifest, folder = subset(built, ids=ids)
    assert {row["id"] for row in rows(manifest, folder, "documents").values()} == ids
    assert subset(built, ids=ids - {"d01"})[0].version != manifest.version


def test_ids_that_duckdb_writes_are_read_whatever_is_in_them(tmp_path: Path) -> None:
    """The query of docs/how-to/exports.md."""
    ids = ["plain", "a,b", 'a "quoted" one', " a\tb ", "#1", '""', "-", "NULL", "a\u2028b\x85", "\\"]
    template = make_documents(Split.TRAIN, len(ids), World(sentences=(5, 6)))
    documents = tuple(replace(each, id=key, language="en") for each, key in zip(template.documents, ids, strict=True))
    vectors = dict(zip(ids, template.sentence_vectors.values(), strict=True))
    made = replace(template, documents=documents, sentence_vectors=vectors)
    manifest, folder = read_manifest(write_lake(tmp_path / "lake", {Split.TRAIN: made}), "synthetic")
    source, file = f"{folder.local}/documents/*/*.parquet", tmp_path / "ids.txt"
    (query,) = re.findall(r'duckdb -c "(COPY .*)"', Path("docs/how-to/exports.md").read_text())
    query = query.replace("'VERSION/documents/*/*.parquet'", f"'{source}'").replace("'ids.txt'", f"'{file}'")
    subprocess.run([sys.executable, "-c", f"import duckdb; duckdb.sql({query!r})"], check=True)
    assert read_ids(str(file), manifest, folder) == {*ids}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"d01\nx y\nd0\n", "2 of 3 ids are not in documents@.*: 'd0', 'x y'$"),
        ("\n".join(f"n{number:02}" for number in range(12)).encode(), "12 of 12 ids .*'n09', ...$"),
        (b"d01\n\xff", "expected UTF-8, found byte 4"),
    ],
)
def test_ids_that_are_not_in_the_version_are_refused(built: Any, tmp_path: Path, text: bytes, message: str) -> None:
    file = tmp_path / "ids.txt"
    file.write_bytes(text)
    with pytest.raises(UsageError, match=message):
        read_ids(str(file), built.manifest, built.folder)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"share": 0}, "more than 0"),
        ({"share": 1.5}, "at most 1"),
        ({}, "expected --share or --ids"),
        ({"ids": frozenset[str]()}, "no document of .* is in this subset"),
    ],
)
def test_what_is_no_selection_is_refused(built: Any, selection: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        subset(built, **selection)


def test_the_command_makes_a_version_that_others_find(built: Any, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("".join(f"d{number:02}\n" for number in range(12)))
    lake = ["--lake", built.lake.root.uri, "--json"]
    choice = ["--share", "0.8", "--ids", str(tmp_path / "ids.txt")]
    result = CliRunner().invoke(app, ["datasets", "subset", built.reference, *choice, *lake])
    assert result.exit_code == 0, result.output
    version = json.loads(result.stdout.splitlines()[-1])["version"]
    shown = CliRunner().invoke(app, ["datasets", "show", f"documents@{version}", *lake])
    assert shown.exit_code == 0, shown.output
