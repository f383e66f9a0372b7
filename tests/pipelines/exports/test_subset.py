"""A subset is a version like any other, within a larger one, with the rows of its parent unchanged."""

import json
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from builds import quiet
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.exports.reading import shards_of
from pipelines.exports.subset import Selection, write_subset
from schemas.documents import Split
from schemas.errors import UsageError
from schemas.lake import Folder
from schemas.manifest import Manifest, verify
from schemas.parts import read_part


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
    manifest, folder = subset(built, where="language == 'de' and not links is None")
    found = rows(manifest, folder, "documents")
    assert {row["language"] for row in found.values()} == {"de"}
    expected = {n for n in range(24) if n % 2 and n % 3 != 2}
    assert {int(row["id"][1:]) for row in found.values()} == expected
    assert manifest.config["subset"]["parent"] == built.reference
    assert manifest.config["subset"]["where"].startswith("language")
    every = rows(built.manifest, built.folder, "documents")
    for split, (of, there) in product(Split, ((manifest, found), (built.manifest, every))):
        of_split = [row for name, row in there.items() if name.startswith(f"{split}/")]
        told = of.splits[split]
        assert told.documents == len(of_split)
        assert told.images == sum(len(row["images"]) for row in of_split)
        assert told.links == sum(len(row["links"] or ()) for row in of_split)
        assert told.unique_images == len({image["hash"] for row in of_split for image in row["images"]})
    assert built.lake.latest("documents") == built.manifest.version
    assert f"A subset of `{built.reference}`" in folder.read("README.md").decode()
    assert all(entry.rows <= 4 for entry in manifest.files if entry.path.startswith("documents/"))


def test_a_subset_is_made_once_and_of_a_subset_again(built: Any) -> None:
    first, folder = subset(built, share=0.5)
    assert subset(built, share=0.5)[0] == first
    inner = write_subset(built.lake, first, folder, Selection(share=0.25), say=quiet)
    direct, at = subset(built, share=0.25)
    inner_at = built.lake.dataset(inner.dataset, inner.version)
    assert rows(inner, inner_at, "documents") == rows(direct, at, "documents")
    assert inner.version != direct.version


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("sentences >= 3", 24),
        ("images > 2 or id in ('d00', 'd01')", 2),
        ("provenance.url == 'https://example.org/7'", 1),
        ("links == 0", 8),
        ("links is None", 8),
        ("id not in ['d00']", 23),
    ],
)
def test_conditions_select_documents(built: Any, where: str, count: int) -> None:
    selected = Selection(where=where)
    tables = [
        read_part(built.folder, shard.documents, ["id", "sentences", "images", "links", "provenance"])
        for shard in shards_of(built.manifest)
    ]
    assert sum(len(selected.rows(table)) for table in tables) == count


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"share": 0}, "more than 0"),
        ({"share": 1.5}, "at most 1"),
        ({}, "expected --share or --where"),
        ({"where": "language = 'de'"}, "expected such as"),
        ({"where": "__import__('os').system('true')"}, "expected a comparison"),
        ({"where": "password == 'x'"}, "no such column; columns: sentences"),
        ({"where": "language == id"}, "expected a text, a number"),
        ({"where": "language == 3"}, "--where:"),
        ({"where": "language == 'fr'"}, "no document of .* is in this subset"),
    ],
)
def test_what_is_no_selection_is_refused(built: Any, selection: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        subset(built, **selection)


def test_the_command_makes_a_version_that_others_find(built: Any) -> None:
    lake = ["--lake", built.lake.root.uri, "--json"]
    result = CliRunner().invoke(app, ["datasets", "subset", built.reference, "--share", "0.4", *lake])
    assert result.exit_code == 0, result.output
    version = json.loads(result.stdout.splitlines()[-1])["version"]
    shown = CliRunner().invoke(app, ["datasets", "show", f"documents@{version}", *lake])
    assert shown.exit_code == 0, shown.output
