"""Draws the pictures of README and guide from the demo's workspace: `make picture`, with Debian's chromium.

linked.png    the README's example, linked by the demo's champion
report.png    the top of the demo's report
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = "/usr/bin/chromium"
MODEL = "models:/multilink-diy-closed-form@champion"
WIDTH, REPORT_HEIGHT = 980, 1240  # px


def main(workspace: Path) -> None:
    """Link the example, and photograph both pages."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        example, page = ROOT / "examples" / "photographs" / "documents.jsonl", Path(scratch) / "page"
        files = ["--input", str(example), "--output", f"{scratch}/links.parquet", "--page", str(page)]
        store = ["--tracking-uri", f"sqlite:///{workspace.absolute()}/mlflow.db"]
        link = [sys.executable, "-m", "orchestration", "link", "--model", MODEL, *files, *store]
        subprocess.run(link, cwd=ROOT, check=True)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": REPORT_HEIGHT})
        view.goto((page / "index.html").as_uri(), wait_until="networkidle")
        view.locator("article").first.screenshot(path=ROOT / "docs" / "pictures" / "linked.png")
        view.goto((workspace.absolute() / "report" / "index.html").as_uri(), wait_until="networkidle")
        view.screenshot(path=ROOT / "docs" / "pictures" / "report.png")
        browser.close()
    for name in ("linked", "report"):
        path = ROOT / "docs" / "pictures" / f"{name}.png"
        Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
