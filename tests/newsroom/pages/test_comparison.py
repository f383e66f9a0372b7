"""Which two models are compared, by the indexes of a lake."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running_newsroom import write_index

from newsroom.pages.archives import Archives
from newsroom.pages.decisions import pair_of
from schemas.errors import NotFoundError
from schemas.lake import Lake

MODELS, VERSION = ("models:/searcher/1", "models:/searcher/2"), "news@0123456789abcdef"


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
        write_index(lake, model, VERSION, made_s=when)
    assert pair(lake, aliases) == order


def test_two_models_over_two_versions_are_no_comparison(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    write_index(lake, MODELS[0], VERSION)
    write_index(lake, MODELS[1], "news@fedcba9876543210")
    with pytest.raises(NotFoundError, match="two models over one data set version"):
        pair(lake, {})
