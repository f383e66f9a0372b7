"""What leaves in a format comes back as the same documents, by one command."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builds import PLAIN, build_of
from PIL import Image
from shared_pictures import SEVERAL, check_reading

from pipelines.exports.export import export_version
from pipelines.exports.reading import ShownDocument, read_shard, shards_of
from schemas.documents import document_schema
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest

KEPT = [name for name in document_schema().names if name not in ("dataset", "images")]


def documents(manifest: Manifest, folder: Folder) -> dict[str, ShownDocument]:
    return {each.row["id"]: each for shard in shards_of(manifest) for each in read_shard(shard, folder)}


def pixels(jpeg: bytes) -> Any:
    with Image.open(io.BytesIO(jpeg)) as picture:
        return np.asarray(picture.convert("RGB"), np.float32)


@pytest.mark.parametrize("form", ["mmc4", "obelics", "webdataset", "hf"])
def test_documents_come_back_equal(built: Any, tmp_path: Path, form: str) -> None:
    before = documents(built.manifest, built.folder)
    export_version(built.manifest, built.folder, Folder(str(tmp_path / "out")), form=form, say=lambda _: None)
    lake = Lake.at(str(tmp_path / "lake"))
    summary = build_of(form, lake, f"source.documents={tmp_path / 'out'}", *PLAIN, *SEVERAL)
    after = documents(summary.manifest, Folder(summary.path))
    assert summary.manifest.failures == {}
    assert after.keys() == before.keys()
    for name, document in after.items():
        assert {key: document.row[key] for key in KEPT} == {key: before[name].row[key] for key in KEPT}
        for stated in ("licence", "source"):
            assert [each[stated] for each in document.pictures] == [each[stated] for each in before[name].pictures]
        for new, old in zip(document.pictures, before[name].pictures, strict=True):
            found, expected = pixels(new["jpeg"]), pixels(old["jpeg"])
            assert found.shape == expected.shape
            assert np.abs(found - expected).mean() < 2  # a JPEG of a JPEG
    assert check_reading(lake, summary.manifest) > 0  # one picture is in all of them
