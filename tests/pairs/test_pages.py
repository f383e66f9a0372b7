"""Pages that are running, and what is forgotten meanwhile."""

import json
import shutil
from pathlib import Path

import pytest
from builds import PLAIN, build

from newsroom.labels.linked import link_sets
from newsroom.pages.datasets import version_rows
from newsroom.pages.pictures import jpeg_of
from pipelines.forgetting.forget import forget
from pipelines.sources.takedowns import parse_takedowns
from schemas.lake import MANIFEST, Lake
from schemas.manifest import Manifest, read_manifest
from schemas.messages import NotFoundError
from schemas.parts import read_part

FIXTURES = Path(__file__).parents[1] / "fixtures"
PHOTOGRAPHS, FORMATS = FIXTURES / "photographs", FIXTURES / "formats"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    """Give a folder whose lake has a version of three documents."""
    folder = tmp_path_factory.mktemp("three")
    documents = [
        {"id": name, "sentences": [f"One two three four {name}."], "images": [{"path": f"{name}.jpg"}]}
        for name in ("cat", "coffee", "rocket")
    ]
    (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, documents)))
    for document in documents:
        shutil.copy(PHOTOGRAPHS / f"{document['id']}.jpg", folder)
    return folder, build(folder / "documents.jsonl", folder / "lake", *PLAIN).manifest


@pytest.mark.parametrize("has_packs", [True, False])
def test_a_forgotten_picture_that_was_looked_at_is_shown_no_more(
    three: tuple[Path, Manifest], has_packs: bool, tmp_path: Path
) -> None:
    folder, manifest = three
    lake = Lake.at(str(shutil.copytree(folder / "lake", tmp_path / "lake")))
    if not has_packs:  # as in a lake that a version was replicated into
        lake.images.remove()
    reference, at = f"documents@{manifest.version}", lake.dataset("documents", manifest.version)
    entries = [entry for split in manifest.splits for entry in manifest.parts("images", split)]
    images = {key for entry in entries for key in read_part(at, entry, ["hash"]).column("hash").to_pylist()}
    assert all(jpeg_of(lake, reference, image).startswith(b"\xff\xd8") for image in images)
    gone = min(images)
    done = forget(lake, parse_takedowns([f"sha256:{gone}".encode()], name="list"), dry_run=False, say=lambda _: None)
    ((old, new),) = done.replaced
    assert old == reference
    for image in images:
        with pytest.raises(NotFoundError):
            jpeg_of(lake, old, image)
    for image in images:
        if image == gone:
            with pytest.raises(NotFoundError):
                jpeg_of(lake, new, image)
        else:
            assert jpeg_of(lake, new, image).startswith(b"\xff\xd8")


def test_lists_leave_out_what_is_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One folder that an upgrade or a disk made unreadable took the list of all of them away."""
    shutil.copytree(FORMATS / "0.1.0" / "lake", tmp_path / "lake")
    lake = Lake.at(str(tmp_path / "lake"))
    version = str(lake.latest("documents"))
    manifest, _ = read_manifest(lake, f"documents@{version}")
    lake.root.child("links", "documents", version, "odd-1").write(MANIFEST, b"{}")
    lake.dataset("documents", "0" * 16).write(MANIFEST, b"{}")
    named = [("documents", each) for each in (version, "0" * 16)]
    assert [row["manifest"].version for row in version_rows(lake, named)] == [version]
    assert "odd-1" not in [each.name for each in link_sets(lake, manifest)]
    assert len(caplog.records) == 2 and "odd-1" in caplog.text and "0" * 16 in caplog.text
