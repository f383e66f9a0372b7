"""The pictures of README and guide, taken in Chromium: `make picture`, of the demo's workspace and the newsroom's.

    python docs/take_pictures.py [WORKSPACE]

linked.png           the README's example, linked by the demo's champion
report.png           the top of the demo's report
newsroom.png         an article with its pictures, in light, and newsroom-dark.png in dark
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
MODEL = "models:/multilink-diy-closed-form@champion"
WIDTH, REPORT_HEIGHT = 980, 1240  # px
ARTICLE = {
    "headline": "Red tractor wins the village race",
    "lead": "Thousands came to Lübeck to see the farmers' tractors on Sunday.",
    "body": "A red tractor won the race. Its driver had painted it himself.\n\nA bulldozer came second.",
}


@contextmanager
def served(workspace: Path) -> Iterator[str]:
    """Run the pages of a workspace with a database of their own; give their address."""
    with tempfile.TemporaryDirectory() as scratch:
        tracking = f"sqlite:///{(workspace / 'mlflow.db').absolute()}"
        options = ["--lake", str(workspace / "lake"), "--store", f"sqlite:///{scratch}/pages.sqlite", "--port", "0"]
        command = [sys.executable, "-m", "orchestration", "pages", *options, "--tracking-uri", tracking, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("{"))
            try:
                yield str(json.loads(line)["address"])
            finally:
                process.terminate()


def take_links(browser: Browser, workspace: Path) -> None:
    """Link the example, and photograph it and the report."""
    with tempfile.TemporaryDirectory() as scratch:
        example, folder = ROOT / "examples" / "photographs" / "documents.jsonl", Path(scratch) / "page"
        files = ["--input", str(example), "--output", f"{scratch}/links.parquet", "--page", str(folder)]
        store = ["--tracking-uri", f"sqlite:///{workspace.absolute()}/mlflow.db"]
        link = [sys.executable, "-m", "orchestration", "link", "--model", MODEL, *files, *store]
        subprocess.run(link, cwd=ROOT, check=True)
        page = browser.new_page(viewport={"width": WIDTH, "height": REPORT_HEIGHT})
        page.goto((folder / "index.html").as_uri(), wait_until="networkidle")
        page.locator("article").first.screenshot(path=PICTURES / "linked.png")
        page.goto((workspace.absolute() / "report" / "index.html").as_uri(), wait_until="networkidle")
        page.screenshot(path=PICTURES / "report.png")
        page.close()
    for name in ("linked", "report"):
        path = PICTURES / f"{name}.png"
        Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def take_newsroom(page: Page, address: str) -> None:
    """Find pictures for an article, choose some, and photograph the page."""
    page.goto(address)
    page.fill("#pasted", "\n\n".join(ARTICLE.values()))
    with page.expect_navigation():
        page.click("#article button.main")
    for number, action in ((0, "choose"), (2, "choose"), (3, "shortlist")):
        button = page.locator(f".picture >> nth={number} >> button[id^={action}-]")
        with page.expect_response("**/decisions"):
            button.click()
    page.wait_for_selector("#tray:has-text('(2)')")
    page.evaluate("scrollTo(0, 0); document.activeElement.blur()")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=PICTURES / "newsroom.png")
    page.emulate_media(color_scheme="dark")
    page.goto(f"{page.url}{'&' if '?' in page.url else '?'}influence=1&entity=Graz")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=PICTURES / "newsroom-dark.png")


def main() -> None:
    workspace = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None or not (workspace / "lake" / "indexes" / "news").is_dir():
        sys.exit(f"expected Chromium and {workspace}/lake/indexes/news, which `multilink demo --news` makes")
    with served(workspace) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, locale="en-GB")
        page.set_default_timeout(120_000)
        take_links(browser, workspace)
        take_newsroom(page, address)
        browser.close()


if __name__ == "__main__":
    main()
