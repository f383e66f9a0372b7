"""The guide's pictures of the newsroom, taken in Chromium: `make picture`, after `multilink demo --news`.

python docs/take_pictures.py [WORKSPACE]
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parent / "pictures"
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


def take(page: Page, address: str) -> None:
    page.goto(address)
    for name, text in ARTICLE.items():
        page.fill(f"#{name}", text)
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
    page.goto(f"{page.url}{'&' if '?' in page.url else '?'}influence=1&entity=Graz&weak=1")
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
        take(page, address)
        browser.close()


if __name__ == "__main__":
    main()
