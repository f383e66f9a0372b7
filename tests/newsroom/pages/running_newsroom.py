"""What the tests of the pages start and read: a server, the recorded news with a model, an archive that means harm."""

import asyncio
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import lakes
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from builds import build_of
from playwright.sync_api import Page
from repository import ROOT
from small_indexes import made_index

from newsroom.pages.app import create_app
from newsroom.pages.state import PagesSettings
from schemas.indexes import CONFIDENCE, IndexManifest
from schemas.lake import MANIFEST, Lake
from schemas.overrides import override
from training.listening import TimedProtocol, bind
from training.recipes import recipe

NEWS = ROOT / "tests" / "replay" / "recording" / "news"
LINES = (NEWS / "articles.jsonl").read_text(encoding="utf-8").splitlines()
ARTICLES = {row["id"]: row for row in map(json.loads, LINES)}
EVIL = '"><script>window.harmed = 1</script><img src=x onerror="window.harmed = 2">'
EVIL_NAME = "<img src=x onerror=window.harmed=3>.jpg"
TRIES = 4
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
WIDTHS = (1600, 768, 400)  # px, of a window; the last of a telephone


@dataclass(frozen=True)
class Server:
    """Pages that are running."""

    url: str

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, follow_redirects=True, **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Newsroom(Server):
    """Pages of the news archive.

    Attributes:
        folder: of the index of the news.
        news: its key.
        evil: key of the index of the archive that means harm.
    """

    folder: str
    news: str
    evil: str

    @property
    def lake(self) -> Path:
        return Path(self.folder).parents[3]

    def alone(self, folder: Path, **options: str) -> PagesSettings:
        """Return settings of pages of the news alone, with a database in a folder."""
        store = f"sqlite:///{folder}/p.sqlite"
        return PagesSettings(lake=str(self.lake), store=store, indexes=(self.folder,), **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Rivals(Server):
    """Pages with the indexes of two models over the news.

    Attributes:
        store: address of their database.
        indexes: folders of the champion's and the challenger's.
    """

    store: str
    indexes: tuple[str, str]


@contextmanager
def served(settings: PagesSettings) -> Iterator[Server]:
    """Run pages on a free port of loopback."""
    app, address = create_app(settings), bind("127.0.0.1", 0)
    config = uvicorn.Config(app, http=TimedProtocol, log_level="critical", root_path=settings.root_path)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [address.bound]}, daemon=True)
    thread.start()
    try:
        yield Server(address.url)
    finally:
        server.should_exit = True
        thread.join(60)
        address.bound.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait, while others work, until something is so."""
    while not condition():
        await asyncio.sleep(0.01)


def searched(client: httpx.Client, texts: dict[str, str], **options: str) -> httpx.Response:
    """Search as a browser without a script does: send the form of the page, again where the pages say they are late."""
    for _ in range(TRIES):  # on a busy machine, what searches may take longer to start than a search may take
        answer = client.post("/articles", data={**texts, **options})
        if answer.status_code != 503:
            break
    assert answer.status_code == 200, answer.text
    return answer


def focused(page: Page) -> str:
    """Return the id of the element that has the focus."""
    return str(page.evaluate("document.activeElement.id"))


def check_page(page: Page, address: str = "") -> None:
    """Hold a page against the rules of WCAG, in both schemes, and the width of its window; by default the open one."""
    page.set_viewport_size({"width": 1400, "height": 1000})
    if address:
        page.goto(address)
    for scheme, rules in (("light", RULES), ("dark", ["color-contrast"])):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = Axe().run(page, options={"runOnly": rules}).response["violations"]
        assert [(each["id"], [node["html"][:120] for node in each["nodes"]][:3]) for each in found] == [], page.url
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url


def key_of(reference: str) -> str:
    """Return the key of the index of a data set version."""
    name, _, version = reference.partition("@")
    return f"{name}~{version[:8]}~searcher-1"


def shown(page: str) -> list[str]:
    """Return the content hashes of the pictures of a ranking, in order; near-duplicates are not counted."""
    return re.findall(r'<a class="open"[^>]*href="[^"]*(?:view=|/images/[^/"]+/)([0-9a-f]{64})', page)


def button(page: str, image: str, action: str) -> dict[str, str] | None:
    """Return what a button of a picture sends; None: the page has no such button."""
    sealed = re.search(r'name="shown" value="([^"]*)"', page)
    found = re.search(rf'name="decide" value="({action}:{image}:\d+)"', page)
    return {"shown": sealed[1], "decide": found[1]} if sealed and found else None


def decide(client: httpx.Client, page: httpx.Response, image: str, action: str, **fields: str) -> httpx.Response:
    """Press a button of a picture, as a browser without a script does."""
    sent = button(page.text, image, action)
    assert sent is not None, action
    return client.post("/decisions", data={**sent, **fields})


def build(recipe_name: str, lake: Lake, *settings: str) -> str:
    """Build a data set; the models here read words, and no vectors of sentences."""
    made = build_of(recipe_name, lake, *settings, "features.sentences=[]").manifest
    return f"{made.dataset}@{made.version}"


def trained(lake: Lake, reference: str, folder: Path) -> Path:
    """Train a model of four sources for a few seconds."""
    steps = ["training.epochs=8", "training.learning_rate=2e-3", "image.standardise=true"]
    return lakes.learn(override(recipe("tiny-liu-2020-multi-source"), steps), lake, folder / "run", dataset=reference)


def write_index(lake: Lake, model: str, dataset: str, *, titles: int = 1, made_s: int | None = None) -> str:
    """Write the manifest of an index, perhaps made at a second since 1970; return its model."""
    name, _, version = dataset.partition("@")
    manifest = IndexManifest(
        model=model, dataset=dataset, made_by=model, rows_by="x", images=2, rows=2, dimensions=1, parts=(), cells=None,
        rank_by="visual", described={"title": titles}, files=(),
    )  # fmt: skip
    folder = lake.index(name, version, model.removeprefix("models:/").replace("/", "-"))
    folder.write(MANIFEST, manifest.to_json().encode())
    if made_s is not None:
        os.utime(Path(folder.uri, MANIFEST), (made_s, made_s))
    return model


def indexed(model: object, lake: Lake, reference: str, confidence: object, name: str = "searcher-1") -> str:
    made = made_index(model, lake, reference, uri=f"models:/{name.replace('-', '/')}", name=name)
    made.folder.write(CONFIDENCE, confidence.to_json().encode())
    others = tuple(entry for entry in made.manifest.files if entry.path != CONFIDENCE)
    made.folder.write(MANIFEST, replace(made.manifest, files=others).to_json().encode())
    return made.folder.uri


def write_evil(folder: Path) -> Path:
    """Write an archive whose words, names and file names are HTML, scripts and paths."""
    archive = folder / "evil"
    archive.mkdir()
    names = {"../../../etc/passwd": EVIL_NAME, "e-0": "b.jpg", "e-1": "c.jpg"}
    for number, name in enumerate(names.values()):
        shutil.copy(NEWS / "pictures" / f"{number:03d}.jpg", archive / name)
    said = dict.fromkeys(("title", "caption", "licence", "place"), EVIL)
    said |= {"credit": "javascript:window.harmed=4", "keywords": [EVIL, "Graz"], "date": "2020"}
    rows = [{"id": key, "image": name, **said} for key, name in names.items()]
    path = archive / "archive.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
