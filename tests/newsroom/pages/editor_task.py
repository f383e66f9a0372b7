"""An editor's task in a browser, by keys alone.

The article is typed as a paste does, its pictures are filtered by a name, two are chosen and one of them taken back,
two models are compared blind, and a picture is moved to another paragraph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

MOST_TABS = 600
UNSETTLED = ".htmx-request, .htmx-swapping, .htmx-settling"


@dataclass
class EditorTask:
    """The task.

    Attributes:
        page: of a browser.
        steps: those that were done.
    """

    page: Page
    steps: list[str] = field(default_factory=list)

    def run(self, address: str, texts: Mapping[str, str]) -> str:
        """Do it all; return the content hash of the picture that was chosen and moved.

        Args:
            address: of an empty article.
            texts: of the article, of two paragraphs at least; it names something that the archive knows.
        """
        page = self.page
        page.goto(address)
        self._paste(texts)
        self._filter()
        image = self._choose()
        with self._step("compare"):
            self._press("details.card.article > summary")
            self._press("#to-comparison", then=lambda: page.wait_for_url("**/comparison/*"))
        self._choose_here("choose blind", "c", "choose")
        page.go_back()
        page.wait_for_selector("#tray")
        self._place(image)
        return image

    def _paste(self, texts: Mapping[str, str]) -> None:
        page = self.page
        self._reach("#pasted", "paste")
        page.keyboard.insert_text("\n\n".join(texts.values()))
        self._press("#article button.main", "paste", lambda: page.wait_for_selector("#pictures a.open"))

    def _filter(self) -> None:
        page = self.page
        name = "#narrow .names a.chip:not(.on)"
        self._press(name, "filter", lambda: page.wait_for_selector("#narrow .names a.chip.on"))
        page.wait_for_selector("a.open")

    def _choose(self) -> str:
        """Choose two pictures, and take the second choice back; return the first."""
        page = self.page
        first = self._choose_here("choose", "c", "choose")
        page.keyboard.press("ArrowRight")
        second = self._choose_here("choose another", "c", "choose")
        assert second != first
        with self._step("undo"):
            page.keyboard.press("u")
            page.wait_for_selector(f"#decide-{second[:12]}[data-standing='']")
        return first

    def _choose_here(self, step: str, key: str, standing: str) -> str:
        """Press a key in the picture that has the focus, or in the first; return its content hash."""
        page = self.page
        if not page.evaluate("document.activeElement.matches('a.open')"):
            self._reach(
                "a.open", step, "Shift+Tab" if page.evaluate("!!document.activeElement.closest('aside')") else "Tab"
            )
        value = page.evaluate("document.activeElement.closest('li').querySelector('[name=decide]').value")
        image = str(value).split(":")[1]
        with self._step(step):
            page.keyboard.press(key)
            page.wait_for_selector(f"#decide-{image[:12]}[data-standing={standing}]")
        page.wait_for_selector(UNSETTLED, state="detached")
        return image

    def _place(self, image: str) -> None:
        """Go to the paragraphs, and move the picture to another one."""
        page = self.page
        self._press("#to-placement", "place", lambda: page.wait_for_selector(f"#at-{image[:12]}"))
        move = f"#at-{image[:12]} a.button[href*='{image}%3A']"
        self._reach(move, "move")
        before = page.url
        with self._step("move"):
            page.keyboard.press("Enter")
            page.wait_for_url(lambda address: address != before)
            page.wait_for_selector(f"#at-{image[:12]}")

    def _press(self, selector: str, step: str = "", then: Callable[[], object] = lambda: None) -> None:
        """Go to what a selector finds first, press Enter, and wait for what follows."""
        self._reach(selector, step)
        with self._step(step):
            self.page.keyboard.press("Enter")
            then()

    def _reach(self, selector: str, step: str, key: str = "Tab") -> None:
        """Press a key until what has the focus fits a selector."""
        for _ in range(MOST_TABS):
            if self.page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
            self.page.keyboard.press(key)
        raise AssertionError(f"{step}: {MOST_TABS} presses of {key} do not lead to {selector}")

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        yield
        if name and name not in self.steps:
            self.steps.append(name)
