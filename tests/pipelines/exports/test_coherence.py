"""Documents are chosen by the links that a model predicted for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.exports.reading import shards_of
from pipelines.exports.subset import Selection, write_subset
from pipelines.exports.where import Coherence, read_coherence
from pipelines.shards.writing import write_rows
from schemas.errors import NotFoundError, UsageError
from schemas.lake import MANIFEST, Folder
from schemas.links import LINK_SCHEMA, LinksManifest


def write_links(folder: Folder, dataset: str, links: dict[str, list[float | None]]) -> None:
    """Write links of documents: of each the probabilities, similarity -0.5 where there is none."""
    fixed = {"similarity": -0.5, "rank": 1, "model": "m"}
    rows = [
        {"document": name, "sentence": number, "image": number, "probability": each, **fixed}
        for name, values in links.items()
        for number, each in enumerate(values)
    ]
    entry = write_rows(folder, "links/train/part-00000-of-00001.parquet", rows, LINK_SCHEMA)
    manifest = LinksManifest(model="m", dataset=dataset, made_by="ab" * 32, precision=None, splits={}, files=(entry,))
    folder.write(MANIFEST, manifest.to_json().encode())


def test_coherence_is_the_sum_of_probabilities_over_the_links_there_can_be() -> None:
    found = Coherence("", {"a": 1.2})
    assert found.of("a", sentences=3, images=2) == pytest.approx(0.6)
    assert found.of("a", sentences=1, images=9) == 1
    assert found.of("b", sentences=3, images=2) == 0


def test_a_subset_has_the_documents_that_are_coherent(built: Any, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "links"))
    write_links(folder, built.reference, {"d00": [0.9, 0.5], "d01": [0.6, 0.5], "d02": [0.99], "d03": [0.9, 0.0]})
    command = ["datasets", "subset", built.reference, "--lake", built.lake.root.uri, "--min-coherence", "0.55"]
    result = CliRunner().invoke(app, [*command, "--links", folder.uri])
    assert result.exit_code == 0, result.output
    coherence = read_coherence(folder, built.reference)
    selection = Selection(min_coherence=0.55, coherence=coherence)
    manifest = write_subset(built.lake, built.manifest, built.folder, selection, say=lambda _: None)
    at = built.lake.dataset("documents", manifest.version)
    kept = {each.row["id"] for shard in shards_of(manifest) for each in shard.read(at)}
    assert kept == {"d00", "d01"}
    assert manifest.config["subset"]["links"] == "ab" * 32
    assert "with a coherence of at least 0.55 by the links of abababab" in at.read("README.md").decode()
    write_links(folder, built.reference, {"d00": [0.9], "d03": [0.9, None]})  # probabilities and similarities never mix
    assert read_coherence(folder, built.reference).sums == {"d00": 0.0, "d03": 0.0}


def test_links_of_another_version_and_none_are_refused(built: Any, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "links"))
    with pytest.raises(NotFoundError, match=r"found no manifest\.json"):
        read_coherence(folder, built.reference)
    write_links(folder, "documents@0", {})
    with pytest.raises(UsageError, match="links of documents@0, expected those of documents@"):
        read_coherence(folder, built.reference)
    with pytest.raises(UsageError, match="expected both or neither"):
        Selection(min_coherence=0.5)
