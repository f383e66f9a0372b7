"""Which two models are compared, by the indexes of a lake."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from newsroom.pages.archives import Archives
from newsroom.pages.decisions import pair_of
from schemas.errors import NotFoundError
from schemas.lake import MANIFEST, Lake
from schemas.links import IndexManifest

MODELS = ("models:/searcher/1", "models:/searcher/2")


def index(lake: Lake, model: str, *, made_s: int, dataset: str = "news@0123456789abcdef") -> str:
    """Write the manifest of an index, made at a second since 1970; return its model."""
    name, _, version = dataset.partition("@")
    manifest = IndexManifest(
        model=model, dataset=dataset, made_by="", rows_by="", images=1, rows=1, dimensions=1, parts=(), cells=None,
        rank_by="visual", described={}, files=(),
    )  # fmt: skip
    folder = lake.root.child("indexes", name, version, model.removeprefix("models:/").replace("/", "-"))
    folder.write(MANIFEST, manifest.to_json().encode())
    os.utime(Path(folder.uri, MANIFEST), (made_s, made_s))
    return model


def pair(lake: Lake, aliases: dict[str, str]) -> tuple[str, str]:
    shared: Any = SimpleNamespace(archives=Archives(lake, (), lambda _: aliases))
    first, second = pair_of(shared)
    return first.manifest.model, second.manifest.model


@pytest.mark.parametrize("made_s", list(itertools.permutations((1000, 2000))))
@pytest.mark.parametrize(
    ("aliases", "order"),
    [
        ({}, MODELS),
        ({"champion": "1"}, MODELS),
        ({"champion": "2"}, MODELS[::-1]),
        ({"challenger": "2"}, MODELS[::-1]),
        ({"champion": "2", "challenger": "1"}, MODELS[::-1]),
    ],
)
def test_the_two_models_have_one_order_whenever_their_indexes_were_made(
    tmp_path: Path, made_s: tuple[int, int], aliases: dict[str, str], order: tuple[str, str]
) -> None:
    """A comparison's result is of two models in an order; an index that is made anew begins no second comparison."""
    lake = Lake.at(str(tmp_path))
    for model, when in zip(MODELS, made_s, strict=True):
        index(lake, model, made_s=when)
    assert pair(lake, aliases) == order


def test_two_models_over_two_versions_are_no_comparison(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    index(lake, MODELS[0], made_s=1)
    index(lake, MODELS[1], made_s=2, dataset="news@fedcba9876543210")
    with pytest.raises(NotFoundError, match="two models over one data set version"):
        pair(lake, {})
