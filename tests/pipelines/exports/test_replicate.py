"""A version arrives whole and checked, or not at all; a stopped copy goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.exports import replicate as module
from pipelines.exports.replicate import replicate
from schemas.errors import IntegrityError, UsageError
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import FileEntry, read_manifest, verify


def quiet(_: str) -> None:
    pass


def test_a_copy_is_intact_and_made_once(built: Any, tmp_path: Path) -> None:
    target = Lake.at(str(tmp_path / "second"))
    (first,) = replicate(built.lake, built.reference, target, say=quiet)
    assert first.copied == len(built.manifest.files)
    manifest, folder = read_manifest(target, "documents")
    assert manifest == built.manifest
    assert list(verify(manifest, folder)) == []
    (again,) = replicate(built.lake, built.reference, target, say=quiet)
    assert (again.copied, again.there) == (0, len(built.manifest.files))


def test_a_copy_that_was_killed_goes_on(built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, copies, copy = Lake.at(str(tmp_path / "second")), list[FileEntry](), module._copy

    def dying(entry: FileEntry, origin: Folder, there: Folder) -> None:
        if len(copies) == 3:
            raise KeyboardInterrupt
        copies.append(entry)
        copy(entry, origin, there)

    monkeypatch.setattr(module, "_copy", dying)
    with pytest.raises(KeyboardInterrupt):
        replicate(built.lake, built.reference, target, say=quiet)
    assert target.versions("documents") == []
    monkeypatch.undo()
    half = target.dataset("documents", built.manifest.version)
    half.write(copies[0].path, b"x" * copies[0].bytes)  # of the right size, and damaged
    (replica,) = replicate(built.lake, built.reference, target, say=quiet)
    assert replica.there == 2
    assert list(verify(*read_manifest(target, "documents"))) == []


def test_damage_at_the_source_is_not_copied(built: Any, tmp_path: Path) -> None:
    source = Lake.at(str(tmp_path / "first"))
    replicate(built.lake, built.reference, source, say=quiet)
    folder = source.dataset("documents", built.manifest.version)
    entry = built.manifest.files[-1]
    folder.write(entry.path, b"0" * entry.bytes)
    target = Lake.at(str(tmp_path / "second"))
    with pytest.raises(IntegrityError, match="the manifest says"):
        replicate(source, "documents", target, say=quiet)
    copy = target.dataset("documents", built.manifest.version)
    assert not copy.exists(entry.path)
    assert not copy.exists(MANIFEST)
    assert not [path for path in copy.files() if path.endswith(".tmp")]
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
