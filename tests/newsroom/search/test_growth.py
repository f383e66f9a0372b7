"""An index of the next version: its rows, words and ranking are those of one that is made from nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import numpy as np
import pytest
import torch
from small_indexes import made_index

from newsroom.archive import build, words
from newsroom.archive import index as archive_index
from newsroom.archive.build import BuiltIndex
from newsroom.archive.filters import parse_filters
from newsroom.archive.index import Index, open_index
from newsroom.search.queries import Query
from newsroom.search.search import search
from pipelines.forgetting.forget import forget
from pipelines.sources.takedowns import Takedowns
from schemas.documents import Split
from schemas.indexes import FIELDS, PARTS, VECTORS
from schemas.lake import MANIFEST, Lake
from training.config import TrainConfig
from training.model import LinkModel
from training.towers.vectors import LinearSettings, SentenceSettings

CONFIG = TrainConfig(dimensions=16, text=SentenceSettings(dropout=0.0), image=LinearSettings(dropout=0.0))


@pytest.fixture(scope="module")
def documents() -> Any:
    return lakes.make_documents(Split.TEST, 80, lakes.World())


def some(made: Any, numbers: range) -> Any:
    return replace(made, documents=tuple(made.documents[number] for number in numbers))


def said_of(made: Any, title: str = "") -> dict[str, Mapping[str, object]]:
    """Return a caption, a credit and a size of every picture, and a title of the first."""
    said: dict[str, Mapping[str, object]] = {}
    for number, key in enumerate(sorted(made.image_vectors)):
        metadata = {"caption": f"number{number} shown", "credit": ["dpa", "AFP", "epa"][number % 3], "keywords": ["k"]}
        metadata |= {"title": title} if title and number == 0 else {}
        said[key] = {"metadata": metadata, "width": 40 + number % 3, "height": 41}
    return said


@pytest.fixture
def lake(documents: Any, tmp_path: Path) -> Lake:
    """Two versions: of the first 60 documents, and of all but the first four, with another title of a picture."""
    lakes.write_lake(tmp_path / "lake", {Split.TEST: some(documents, range(60))}, said=said_of(documents))
    return lakes.write_lake(
        tmp_path / "lake",
        {Split.TEST: some(documents, range(4, 80))},
        version="v2",
        said=said_of(documents, "Another title"),
    )


@pytest.fixture(autouse=True)
def half_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_index, "MOST_GONE", 0.5)


@pytest.fixture
def model(lake: Lake) -> LinkModel:
    return lakes.untrained(CONFIG, lake)


def made(model: LinkModel, lake: Lake, version: str, name: str = "m", **options: Any) -> BuiltIndex:
    return made_index(model, lake, f"synthetic@{version}", name=name, **options)


def everything(index: Index) -> dict[str, tuple[Any, list[float]]]:
    """Return what is known of each picture that is in the version, and its vector."""
    rows = np.flatnonzero(index.records.is_live)
    found = zip(index.records.pictures(rows.tolist()), index.vectors.rows[rows], strict=True)
    return {picture.image: (picture, vector.tolist()) for picture, vector in found}


def check_alike(one: Index, other: Index) -> None:
    first, second = everything(one), everything(other)
    assert {key: picture for key, (picture, _) in first.items()} == {key: one for key, (one, _) in second.items()}
    for image, (_, vector) in second.items():
        assert first[image][1] == pytest.approx(vector, abs=1e-6)
    key = min(first)
    for filters in (parse_filters(), parse_filters(["credit=dpa", "width>=41"])):
        ranked = [search(each, Query(like=(key,)), filters=filters, top=30).images for each in (one, other)]
        assert [each.picture.image for each in ranked[0]] == [each.picture.image for each in ranked[1]]
        counted = [(each.records.number(filters), each.records.facets(filters)) for each in (one, other)]
        assert counted[0] == counted[1]
    assert one.records.described() == other.records.described() == one.manifest.described


@pytest.mark.parametrize("exact_below", [100_000, 50])
def test_a_grown_index_is_as_one_that_is_made_from_nothing(
    lake: Lake, model: LinkModel, exact_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "MOST_MORE", 2.0)
    first = made(model, lake, "v1", exact_below=exact_below).manifest
    grown = made(model, lake, "v2", exact_below=exact_below)
    alone = made(model, lake, "v2", name="other", exact_below=exact_below).manifest
    assert grown.manifest.parts[:-1] == first.parts and len(alone.parts) == 1
    assert grown.manifest.rows > grown.manifest.images == alone.images == alone.rows
    measured_with = None if exact_below == 100_000 else "texts"
    assert (grown.manifest.cells and grown.manifest.cells.measured_with) == measured_with
    assert grown.manifest.described == alone.described
    index = open_index(grown.folder.uri)
    check_alike(index, open_index(lake.index("synthetic", "v2", "other").uri))
    changed = index.records.pictures([index.records.words.rank("another title", 5).rows[0]])[0]
    assert changed.metadata.title == "Another title"
    gone = set(everything(open_index(lake.index("synthetic", "v1", "m").uri))) - set(everything(index))
    assert gone and index.records.rows_of(sorted(gone)) == [None] * len(gone)
    for name in (VECTORS, FIELDS):
        paths = [Path(lake.index("synthetic", each, "m").uri, PARTS, first.parts[0], name) for each in ("v1", "v2")]
        assert paths[0].samefile(paths[1])
    lake.index("synthetic", "v1", "m").remove()
    assert len(everything(open_index(grown.folder.uri))) == grown.manifest.images


@pytest.mark.parametrize(("setting", "value"), [("MOST_GONE", 0.0), ("MOST_GROWN", 0)])
def test_where_little_can_be_kept_an_index_is_made_from_nothing(
    lake: Lake, model: LinkModel, setting: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_index, setting, value)
    made(model, lake, "v1")
    anew, alone = made(model, lake, "v2").manifest, made(model, lake, "v2", name="other").manifest
    assert anew.parts == alone.parts and len(anew.parts) == 1 and anew.rows == anew.images


def test_another_model_lends_nothing(lake: Lake, model: LinkModel) -> None:
    made(model, lake, "v1")
    with torch.no_grad():
        model.image.affine.weight.mul_(-1)  # type: ignore[union-attr,operator]
    other = made(model, lake, "v2")
    assert len(other.manifest.parts) == 1 and other.manifest.rows == other.manifest.images


def test_an_archive_of_several_parts_and_segments_is_as_one_of_one(
    lake: Lake, model: LinkModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(model, lake, "v1", name="whole")
    monkeypatch.setattr(build, "PART_ROWS", 50)
    monkeypatch.setattr(words, "HEAP_BYTES", 15_000_000)  # the least that the library takes
    several = made(model, lake, "v1")
    assert len(several.manifest.parts) > 2
    check_alike(*(open_index(each.folder.uri) for each in (several, whole)))


def test_on_an_object_store_a_grown_index_has_copies_of_the_parts(
    lake: Lake, model: LinkModel, object_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Lake.at(f"s3://lake/own?{object_store}")
    for name in sorted(lake.root.files(), key=lambda name: name.endswith(MANIFEST)):
        there.root.write(name, lake.root.read(name))
    first, grown = made(model, there, "v1").manifest, made(model, there, "v2")
    assert grown.manifest.parts[:-1] == first.parts
    there.index("synthetic", "v1", "m").remove()
    check_alike(open_index(grown.folder.uri), open_index(made(model, lake, "v2").folder.uri))


def test_what_is_forgotten_is_in_no_index_that_had_it(
    lake: Lake, model: LinkModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture of the first version has a row in the index of the second, which does not show it."""
    old = everything(open_index(made(model, lake, "v1").folder.uri))
    grown = made(model, lake, "v2")
    gone = min(set(old) - set(everything(open_index(grown.folder.uri))))
    for folder in (lake.dataset("synthetic", "v1"), lake.index("synthetic", "v1", "m")):
        folder.remove()
    held = [path for path in lake.root.files() if gone.encode() in lake.root.read(path)]
    assert held == [f"indexes/synthetic/v2/m/{PARTS}/{grown.manifest.parts[0]}/{FIELDS}"]
    named = Takedowns((f"sha256:{gone}",))
    assert forget(lake, named, dry_run=True, say=print).indexes == ("indexes/synthetic/v2/m",)
    assert grown.folder.exists(MANIFEST)
    assert forget(lake, Takedowns((f"sha256:{'1' * 64}",)), dry_run=False, say=print).indexes == ()
    assert forget(lake, named, dry_run=False, say=print).indexes == ("indexes/synthetic/v2/m",)
    assert not [path for path in lake.root.files() if path.startswith("indexes/")]
    assert len(made(model, lake, "v2").manifest.parts) == 1
