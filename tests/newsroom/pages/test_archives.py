"""Indexes that are made while the pages run are found, and compared; a look that fails keeps those found before."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running_newsroom import write_index

from newsroom.pages import app
from newsroom.pages.archives import Archives, Choice
from newsroom.pages.decisions import pair_of
from schemas.lake import MANIFEST, Lake
from schemas.messages import BuildError, IntegrityError, NotFoundError


def add(lake: Lake, name: str, dataset: str = "news@v1", titles: int = 1) -> None:
    write_index(lake, f"models:/{name}/1", dataset, titles=titles)


def test_an_index_that_is_made_later_is_found(tmp_path: Path) -> None:
    lake, champions = Lake.at(str(tmp_path)), {"b": "1"}
    found = Archives(lake, (), lambda name: {"champion": champions[name]} if name in champions else {})
    assert found.choices == []
    with pytest.raises(NotFoundError, match="multilink index"):
        found.choice("")
    add(lake, "a")
    add(lake, "b")
    assert [each.model for each in found.look()] == ["b 1", "a 1"]  # the champion is the first
    found.choices = found.look()
    assert found.choice("news~v1~a-1").model == "a 1"
    with pytest.raises(NotFoundError, match=r"no index 'x'; indexes: news~v1~b-1, news~v1~a-1"):
        found.choice("x")


def test_pictures_with_titles_come_before_a_champion_without(tmp_path: Path) -> None:
    """An editor who opens the pages sees the archive that says something of its pictures."""
    lake = Lake.at(str(tmp_path))
    add(lake, "posts", "posts@v1", titles=0)
    add(lake, "news")
    found = Archives(lake, (), lambda name: {"champion": "1"} if name == "posts" else {})
    assert [each.model for each in found.choices] == ["news 1", "posts 1"]


def test_an_index_of_another_format_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake.at(str(tmp_path))
    add(lake, "a")
    add(lake, "b")
    folder = lake.index("news", "v1", "a-1")
    folder.write(MANIFEST, folder.read(MANIFEST).decode().replace('"format": 3', '"format": 1').encode())
    assert [each.model for each in Archives(lake, (), lambda _: {}).choices] == ["b 1"]
    assert "`multilink index` makes it again" in caplog.text
    with pytest.raises(IntegrityError, match="found format = 1"):
        Archives(lake, (folder.uri,), lambda _: {})


class _Searches:
    """In place of processes: counts what is opened, and fails where it is told to."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.fails = False

    async def prepare(self, choices: Sequence[Choice]) -> None:
        self.prepared.append(choices[0].model)
        if self.fails:
            raise BuildError("the index is not whole")


def test_a_new_first_index_is_the_first_when_it_is_open(tmp_path: Path) -> None:
    """A look that fails, and an index that cannot be opened, change nothing."""
    lake, registry_fails = Lake.at(str(tmp_path)), [False]

    def aliases(name: str) -> dict[str, str]:
        if registry_fails[0]:
            raise BuildError("the registry is away")
        return {"champion": "1"} if name == "b" else {}

    add(lake, "a")
    archives, searches = Archives(lake, (), aliases), _Searches()
    shared: Any = SimpleNamespace(archives=archives, searches=searches)
    steps: list[object] = []

    async def next_look(_: float) -> None:
        steps.append([[each.model for each in archives.choices], list(searches.prepared)])
        if len(steps) == 1:
            add(lake, "b")
            searches.fails = True
        elif len(steps) == 2:
            registry_fails[0], searches.fails = True, False
        elif len(steps) == 3:
            registry_fails[0] = False
        else:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(app._follow_indexes(shared, next_look))
    assert steps == [
        [["a 1"], ["a 1"]],
        [["a 1"], ["a 1", "b 1"]],  # it could not be opened
        [["a 1"], ["a 1", "b 1"]],  # it could not be looked for
        [["b 1", "a 1"], ["a 1", "b 1", "b 1"]],
    ]
    changed = replace(archives.choices[0], aliases=())
    assert changed.content == archives.choices[0].content  # a promotion opens nothing anew


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
