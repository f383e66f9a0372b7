"""A version arrives whole and checked, or not at all; a stopped copy goes on where it was, and holds its data set.

What two versions share is what sets of their keys have in common.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from builds import PLAIN, build, quiet
from ten_documents import draw_picture
from typer.testing import CliRunner

from orchestration.cli import app
from orchestration.workflows.overlap import EXAMPLES
from pipelines.exports import export as module
from pipelines.exports.export import replicate
from pipelines.exports.reading import read_shard, shards_of
from pipelines.exports.subset import write_labelled
from pipelines.forgetting.forget import forget
from pipelines.sources.takedowns import parse_takedowns
from schemas.lake import MANIFEST, Folder, Lake
from schemas.leases import HeldError
from schemas.manifest import FileEntry, read_manifest, verify
from schemas.messages import IntegrityError, UsageError


@pytest.fixture(params=["folder", "object store"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Return the second lake, which nothing is in."""
    if request.param == "object store":
        return Lake.at(f"s3://lake/{tmp_path.name}?{request.getfixturevalue('object_store')}")
    return Lake.at(str(tmp_path / "second"))


def test_a_copy_is_intact_and_made_once(built: Any, target: Lake) -> None:
    (first,) = replicate(built.lake, built.reference, target, say=quiet)
    assert first.copied == len(built.manifest.files)
    manifest, folder = read_manifest(target, "documents")
    assert manifest == built.manifest and list(verify(manifest, folder)) == []
    (again,) = replicate(built.lake, built.reference, target, say=quiet)
    assert (again.copied, again.there) == (0, len(built.manifest.files))


def test_a_copy_that_was_killed_goes_on(built: Any, target: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    copies, copy = list[FileEntry](), module._copy

    def dying(entry: FileEntry, origin: Folder, there: Folder) -> None:
        if len(copies) == 3:
            raise KeyboardInterrupt
        copies.append(entry)
        copy(entry, origin, there)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "_copy", dying)
        replicate(built.lake, built.reference, target, say=quiet)
    assert target.versions("documents") == []
    half = target.dataset("documents", built.manifest.version)
    half.write(copies[0].path, b"x" * copies[0].bytes)  # of the right size, and damaged
    (replica,) = replicate(built.lake, built.reference, target, say=quiet)
    assert replica.there == 2
    assert list(verify(*read_manifest(target, "documents"))) == []


def test_damage_at_the_source_is_not_copied(built: Any, tmp_path: Path, target: Lake) -> None:
    source = Lake.at(str(tmp_path / "first"))
    replicate(built.lake, built.reference, source, say=quiet)
    folder = source.dataset("documents", built.manifest.version)
    entry = built.manifest.files[-1]
    folder.write(entry.path, b"0" * entry.bytes)
    with pytest.raises(IntegrityError, match="the manifest has"):
        replicate(source, "documents", target, say=quiet)
    copied = [*target.dataset("documents", built.manifest.version).files()]
    assert not [path for path in copied if path in (entry.path, MANIFEST) or path.endswith(".tmp")]
    folder.delete(entry.path)
    with pytest.raises(IntegrityError, match="missing, though the manifest names it"):
        replicate(source, "documents", target, say=quiet)


def test_another_version_of_the_same_name_and_the_lake_itself_are_refused(built: Any, tmp_path: Path) -> None:
    target = Lake.at(str(tmp_path / "second"))
    target.dataset("documents", built.manifest.version).write(MANIFEST, b"{}")
    with pytest.raises(IntegrityError):
        replicate(built.lake, built.reference, target, say=quiet)
    with pytest.raises(UsageError, match="the lake itself"):
        replicate(built.lake, "documents", built.lake, say=quiet)


def test_the_command_copies_all_versions_of_a_name(built: Any, tmp_path: Path) -> None:
    arguments = ["datasets", "replicate", "documents", str(tmp_path / "second"), "--lake", built.lake.root.uri]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    copied = {each["version"] for each in json.loads(result.stdout.splitlines()[-1])["versions"]}
    second = Lake.at(str(tmp_path / "second"))
    assert copied == set(second.versions("documents")) == set(built.lake.versions("documents"))
    assert second.latest("documents") == built.lake.latest("documents")


SHARED = "The same five words stand here."


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Two data sets; of `one` documents 0 to 15, of `two` 12 to 19: other sentences, pictures and addresses."""
    for number in range(20):
        draw_picture(tmp_path / "own" / f"{number}.png", number)
    for name, numbers in (("one", range(16)), ("two", range(12, 20))):
        records(tmp_path / "own" / f"{name}.jsonl", name, numbers)
        settings = (f"dataset={name}", "splits.val=0", "splits.test=0")
        build(tmp_path / "own" / f"{name}.jsonl", tmp_path / "lake", *PLAIN, *settings)
    return f"{tmp_path}/lake"


def records(path: Path, name: str, numbers: Iterable[int]) -> None:
    lines = [
        {
            "id": f"d{number}",
            "url": f"https://h.example/{name if number % 2 else ''}{number}",
            "sentences": [SHARED, f"In {name} this is sentence {number} of all."],
            "images": [{"path": f"{number}.png"}],
        }
        for number in numbers
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def overlap(lake: str, first: str, second: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["datasets", "overlap", first, second, "--lake", lake, "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["overlaps"]
    return {row["thing"]: (row["first"], row["both"], row["second"], tuple(row["examples"])) for row in rows}


def test_two_data_sets_and_a_version_and_itself(lake: str) -> None:
    found = overlap(lake, "one", "two")
    assert found["ids"] == (12, 4, 4, ("d12", "d13", "d14", "d15"))
    assert found["addresses of pages"] == (14, 2, 6, ("https://h.example/12", "https://h.example/14"))
    assert found["sentences"] == (16, 1, 8, ("the same five words stand here",))
    assert found["texts of documents"] == (16, 0, 8, ())
    assert found["contents of images"][:3] == (12, 4, 4) and len(found["contents of images"][3]) == 4
    assert found["addresses of images"][1] == 4
    found = overlap(lake, "one", "one")
    assert {(first, second) for first, _, second, _ in found.values()} == {(0, 0)}
    assert found["ids"][1] == 16 and len(found["ids"][3]) == EXAMPLES


def test_what_deletes_waits_for_copies_subsets_and_labelled_sets(built: Any, tmp_path: Path) -> None:
    """Each holds the data set that it writes: what deletes from the lake is refused meanwhile, at each of its files."""
    lake, refused = Lake.at(str(tmp_path / "lake")), list[str]()

    def deleting(line: str) -> None:
        with pytest.raises(HeldError):
            forget(lake, parse_takedowns([b"id:a"], name="list"), dry_run=False, say=lambda _: None)
        refused.append(line)

    replicate(built.lake, built.reference, lake, say=deleting)
    manifest, folder = read_manifest(lake, "documents")
    labels = {row.row["id"]: {0: 0} for shard in shards_of(manifest) for row in read_shard(shard, folder)}
    write_labelled(lake, manifest, folder, labels, "people", say=deleting)
    assert any("files" in line for line in refused) and any("shards" in line for line in refused)
    assert list(verify(*read_manifest(lake, "documents"))) == []
    assert read_manifest(lake, "people")[0].dataset == "people"
