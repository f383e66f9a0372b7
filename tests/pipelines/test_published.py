"""Every data set of published files, from its fixture to shards: what a source reads is what the shards hold.

What each source should read is worked out by hand in its own tests; here its documents meet pictures and Beam. Their
documents share pictures, and each is a shard: training reads every picture of every document.
"""

import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builds import documents_of, quiet
from candidates import uris_of
from published import SETTINGS, candidates_of, config_of, draw_all
from shared_pictures import SEVERAL, check_reading

from pipelines.run import build_dataset
from schemas.documents import Link
from schemas.lake import Lake
from schemas.overrides import override

ALIKE = ("story-sis", "dii-stress")  # read by the source of `story-dii`, to the same columns


@pytest.mark.parametrize(
    "dataset", [pytest.param(name, marks=[pytest.mark.trial] * (name in ALIKE)) for name in sorted(SETTINGS)]
)
def test_what_is_read_is_what_the_shards_hold(dataset: str, tmp_path: Path) -> None:
    root, lake = tmp_path / "images", Lake.at(str(tmp_path / "lake"))
    root.mkdir()
    drafts = candidates_of(config_of(dataset, str(root)))
    assert drafts
    draw_all(drafts, root, different=max(len(uris_of(draft)) for draft in drafts))
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        archive.add(root, arcname=".")
    config = override(config_of(dataset, str(tmp_path / "images.tar")), SEVERAL)
    summary = build_dataset(config, lake=lake, say=quiet)
    built = documents_of(summary)
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
    assert len(built) > 1 and check_reading(lake, summary.manifest) > 0


def links_of(row: dict[str, Any]) -> tuple[Link, ...] | None:
    """Return the links of a row of a documents part."""
    if row["links"] is None:
        return None
    return tuple(
        Link(link["sentence"], link["image"], tuple((r["name"], r["value"]) for r in link["relations"]))
        for link in row["links"]
    )
