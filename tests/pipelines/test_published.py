"""Every data set of published files, from its fixture to shards: what a source reads is what the shards hold.

What each source should read is worked out by hand in its own tests; here its documents meet pictures and Beam.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from candidates import uris_of
from published import SETTINGS, candidates_of, config_of, draw_all

from pipelines.run import build_dataset
from schemas.documents import Link, Split
from schemas.lake import Lake


@pytest.mark.parametrize("dataset", sorted(SETTINGS))
def test_what_is_read_is_what_the_shards_hold(dataset: str, tmp_path: Path, quiet: Callable[[str], None]) -> None:
    root = tmp_path / "images"
    root.mkdir()
    drafts = candidates_of(config_of(dataset, str(root)))
    assert drafts
    draw_all(drafts, root)
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        archive.add(root, arcname=".")
    summary = build_dataset(
        config_of(dataset, str(tmp_path / "images.tar")),
        lake=Lake.at(str(tmp_path / "lake")),
        say=quiet,
    )
    built: dict[str, dict[str, Any]] = {}
    for split in Split:
        for entry in summary.manifest.parts("documents", split):
            for row in pq.read_table(Path(summary.path) / entry.path).to_pylist():
                built[row["id"]] = row
    assert built.keys() == {draft.id for draft in drafts if draft.sentences}
    times = Counter(draft.id for draft in drafts)
    for draft in (draft for draft in drafts if times[draft.id] == 1 and draft.sentences):
        row = built[draft.id]
        assert row["dataset"] == dataset
        assert [(sentence["text"], sentence["role"]) for sentence in row["sentences"]] == [
            (sentence.text, sentence.role) for sentence in draft.sentences
        ]
        assert [image["source"] for image in row["images"]] == list(uris_of(draft))
        assert links_of(row) == draft.links
        assert draft.split in (None, row["split"])


def links_of(row: dict[str, Any]) -> tuple[Link, ...] | None:
    """Return the links of a row of a documents part."""
    if row["links"] is None:
        return None
    return tuple(
        Link(link["sentence"], link["image"], tuple((r["name"], r["value"]) for r in link["relations"]))
        for link in row["links"]
    )
