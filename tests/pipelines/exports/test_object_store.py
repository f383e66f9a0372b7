"""Copies and exports go to an object store: the same bytes as in a folder, and a stopped copy goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.exports import replicate as module
from pipelines.exports.export import EXPORT, export_version
from pipelines.exports.replicate import replicate
from schemas.errors import IntegrityError
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, read_manifest, verify


def quiet(_: str) -> None:
    pass


def test_a_version_is_copied_checked_and_gone_on_with(
    built: Any, object_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, copy, count = Lake.at(f"s3://lake/second?{object_store}"), module._copy, 0

    def dying(entry: FileEntry, origin: Folder, there: Folder) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        copy(entry, origin, there)

    monkeypatch.setattr(module, "_copy", dying)
    with pytest.raises(KeyboardInterrupt):
        replicate(built.lake, built.reference, target, say=quiet)
    assert target.versions("documents") == []
    monkeypatch.undo()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    (replica,) = replicate(built.lake, built.reference, target, say=quiet)
    assert replica.there == 3
    manifest, folder = read_manifest(target, "documents")
    assert manifest == built.manifest
    assert list(verify(manifest, folder)) == []


def test_damage_at_the_source_leaves_no_object(built: Any, object_store: str, tmp_path: Path) -> None:
    source, target = Lake.at(str(tmp_path / "first")), Lake.at(f"s3://lake/third?{object_store}")
    replicate(built.lake, built.reference, source, say=quiet)
    entry = built.manifest.files[0]
    source.dataset("documents", built.manifest.version).write(entry.path, b"0" * entry.bytes)
    with pytest.raises(IntegrityError, match="the manifest says"):
        replicate(source, "documents", target, say=quiet)
    assert not target.dataset("documents", built.manifest.version).exists(entry.path)
    assert target.versions("documents") == []


@pytest.mark.parametrize("form", ["webdataset", "lance"])
def test_an_export_goes_to_a_bucket(built: Any, object_store: str, form: str) -> None:
    if form == "lance":
        pytest.importorskip("lance", reason="pylance is not installed")
    target = Lake.at(f"s3://lake/exports/{form}?{object_store}").root
    export = export_version(built.manifest, built.folder, target, form=form, say=quiet)
    assert {*target.files()} == {EXPORT, *(entry.path for entry in export.files)}
    again = export_version(built.manifest, built.folder, target, form=form, say=quiet)
    assert {*target.files()} == {EXPORT, *(entry.path for entry in again.files)}
    assert (again == export) == (form != "lance")
