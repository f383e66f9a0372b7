"""A running newsroom: the recorded news, a model that was trained on them for seconds, an archive that means harm."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from newsroom import NEWS, Newsroom, build, indexed, key_of, served, trained, write_evil

from orchestration.archive import Archive
from orchestration.pages.settings import PagesSettings
from schemas.lake import Lake


@pytest.fixture(scope="session")
def newsroom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newsroom]:
    """Build the news and an archive that means harm, train on the news, index both, and show them."""
    from training.evaluation.metrics.calibration import Calibration, Method
    from training.model import LinkModel

    folder = tmp_path_factory.mktemp("newsroom")
    lake = Lake.at(str(folder / "lake"))
    news = build("news", [f"source.articles={NEWS / 'articles.jsonl'}", f"source.images={NEWS}"], lake)
    model = LinkModel.load(trained(lake, news, folder))
    calibration = Calibration(
        dataset=news, split="val", documents=39, links=156, true_links=156, method=Method.PLATT,
        slope=20.0, intercept=-9.0,
    )  # fmt: skip
    evil = build("archive", [f"source.archive={write_evil(folder)}"], lake, model)
    folders = {}
    for name, reference in (("news", news), ("evil", evil)):
        folders[name] = indexed(model, lake, reference, calibration)
    settings = PagesSettings(lake=lake.root.uri, store=f"sqlite:///{folder}/pages.sqlite")
    with served(settings) as server:
        yield Newsroom(server.url, folders["news"], key_of(news), key_of(evil))


@pytest.fixture(scope="session")
def archive(newsroom: Newsroom) -> Iterator[Archive]:
    """The index of the news, opened by the library."""
    with Archive(newsroom.folder) as opened:
        yield opened


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> PagesSettings:
    """Settings of pages of a lake in which nothing is."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "lake").mkdir()
    return PagesSettings(lake=str(folder / "lake"), store=f"sqlite:///{folder}/pages.sqlite")
