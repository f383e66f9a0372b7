"""A running newsroom: the recorded news, a model that was trained on them for seconds, an archive that means harm."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import torch
from playwright.sync_api import Browser, Page, sync_playwright
from running_newsroom import NEWS, Newsroom, Rivals, build, indexed, key_of, served, trained, write_evil

from newsroom.archive.index import Confidence
from newsroom.pages.archives import Choice
from newsroom.pages.searches import Opened
from newsroom.pages.state import PagesSettings
from newsroom.search.archive import Archive
from schemas.lake import Lake
from training.metrics.curves import ProbabilityCurve
from training.model import LinkModel

WAIT_MS = 120_000


@pytest.fixture(scope="session")
def newsroom(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newsroom]:
    """Build the news and an archive that means harm, train on the news, index both, and show them."""
    folder = tmp_path_factory.mktemp("newsroom")
    lake = Lake.at(str(folder / "lake"))
    news = build("news", lake, f"source.articles={NEWS / 'articles.jsonl'}", f"source.images={NEWS}")
    model = LinkModel.load(trained(lake, news, folder))
    curve = ProbabilityCurve(observations=156, right=156, slope=20.0, intercept=-9.0)
    confidence = Confidence(texts=news, images=39, queries=156, found=156, any_of_first=curve, pictures=curve)
    columns = f"features.images={model.card.data.image_features}"
    evil = build("archive", lake, f"source.archive={write_evil(folder)}", columns)
    of_news, _ = (indexed(model, lake, reference, confidence) for reference in (news, evil))
    settings = PagesSettings(lake=lake.root.uri, store=f"sqlite:///{folder}/pages.sqlite")
    with served(settings) as server:
        yield Newsroom(server.url, of_news, key_of(news), key_of(evil))


@pytest.fixture
def client(newsroom: Newsroom) -> Iterator[httpx.Client]:
    """A browser without a script, on the pages of the news."""
    with newsroom.client() as opened:
        yield opened


@pytest.fixture(scope="session")
def archive(newsroom: Newsroom) -> Iterator[Archive]:
    """The index of the news, opened by the library."""
    with Archive(newsroom.folder) as opened:
        yield opened


@pytest.fixture(scope="session")
def opened(newsroom: Newsroom, archive: Archive) -> Iterator[Opened]:
    """The same index as a process that searches has it."""
    with Opened(Choice(uri=newsroom.folder, manifest=archive.index.manifest), ()) as found:
        yield found


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> PagesSettings:
    """Settings of pages of a lake in which nothing is."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "lake").mkdir()
    return PagesSettings(lake=str(folder / "lake"), store=f"sqlite:///{folder}/pages.sqlite")


@pytest.fixture(scope="session")
def rivals(newsroom: Newsroom, archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rivals]:
    """Index the news with a second model, whose image head is another, and show both."""
    other = LinkModel.load(Path(newsroom.folder, "model"))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for weights in other.image.parameters():
            weights.add_(torch.randn_like(weights) * weights.std().nan_to_num(0.1) * 0.5)
    lake = Lake.at(str(Path(newsroom.folder).parents[3]))
    challenger = indexed(other, lake, archive.index.manifest.dataset, archive.index.confidence, name="searcher-2")
    store, indexes = f"sqlite:///{tmp_path_factory.mktemp('rivals')}/pages.sqlite", (newsroom.folder, challenger)
    with served(PagesSettings(lake=lake.root.uri, store=store, indexes=indexes)) as server:
        yield Rivals(server.url, store, indexes)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium; one at a time, as Playwright wants it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose requests all went to one server, and whose console has no complaint, when the test is over."""
    asked: set[str] = set()
    said: list[str] = []
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, locale="en-GB")
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    opened.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    opened.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda problem: said.append(str(problem)))
    yield opened
    assert opened.evaluate("window.harmed") is None
    context.close()
    assert len(asked) == 1 and said == []
