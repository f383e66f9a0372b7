"""The article page in a real Chromium: by keyboard, on documents that mean harm, accessible, nothing from outside."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, Route
from running_newsroom import ARTICLES, EVIL, Newsroom, check_page, focused, searched, shown

pytestmark = pytest.mark.slow  # builds the news and trains on them
WAIT_MS = 120_000
TEXTS = {
    "headline": "Gesprächsthema: Neptun, einer der »Gasriesen« in unserem Sonnensystem.",
    "lead": "In Graz blieben die Leute stehen: Ein offenes Vorhängeschloss.",
    "caption": "Neptun, einer der »Gasriesen« in unserem Sonnensystem. Ein offenes Vorhängeschloss.",
    "body": "Die Leser hatten danach gefragt. Wer am 2022-05-07 kam, sah mehr. Letzte Woche war es anders.",
}


def address(newsroom: Newsroom, texts: dict[str, str] = TEXTS, **options: str) -> str:
    with newsroom.client() as client:
        return str(searched(client, texts, **{"index": newsroom.news, **options}).url)


def test_an_editor_needs_no_mouse(page: Page, newsroom: Newsroom) -> None:
    """Write, rank, leave a word out, take it back, filter by a place, open a picture: by keys alone."""
    page.goto(f"{newsroom.url}/?index={newsroom.news}")
    while not page.locator("a.open img").count():  # while the archive is opened
        page.reload()
    assert focused(page) == "pasted" and page.locator("a.open img").count() == 24  # the newest
    page.keyboard.type(f"{TEXTS['headline']}\n\n{TEXTS['lead']}\n\n{TEXTS['body']}")
    page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    before = shown(page.content())
    assert len(before) == 12

    page.focus("#w-headline-0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert focused(page) == "w-headline-2"
    page.keyboard.press("Enter")
    page.wait_for_selector("#w-headline-2.out")
    assert "leave=headline.2" in page.url
    assert focused(page) == "w-headline-2"  # where the editor was
    assert f"of {len(ARTICLES)}" in str(page.text_content("#announced"))
    page.keyboard.press("Enter")
    page.wait_for_selector("#w-headline-2:not(.out)")
    assert shown(page.content()) == before
    page.go_back()
    page.wait_for_selector("#w-headline-2.out")
    page.go_forward()
    page.wait_for_selector("#w-headline-2:not(.out)")

    page.focus("#e-1-LOC")
    page.keyboard.press("Enter")
    page.wait_for_selector("#e-1-LOC.on")
    assert "entity=Graz" in page.url
    page.wait_for_selector("a.open")
    page.focus("a.open >> nth=0")
    page.keyboard.press("ArrowRight")
    second = shown(page.content())[1]
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert second in page.url and page.locator("figure img").evaluate("each => each.naturalWidth") > 0
    assert "Graz" in str(page.text_content("main"))


def held(page: Page, pattern: str, ask: Callable[[], object]) -> Route:
    """What `ask` asks for first whose address has `pattern`: held until it is let go."""
    found: list[Route] = []
    page.unroute_all()
    page.route(re.compile(pattern), lambda route: route.continue_() if found else found.append(route))
    ask()
    while not found:
        page.wait_for_timeout(10)
    return found[0]


def let_go(page: Page, route: Route) -> None:
    """Answer what was held, and wait until the page has seen it."""
    with page.expect_event("requestfinished", lambda request: request == route.request):
        route.continue_()
    page.evaluate("new Promise((done) => setTimeout(done, 200))")


def press(page: Page, selector: str) -> None:
    page.focus(selector)
    page.keyboard.press("Enter")


def test_an_answer_that_comes_late_takes_no_place(page: Page, newsroom: Newsroom) -> None:
    """The list that goes on, a filter, and a step back: each is answered after what was pressed next."""
    page.goto(address(newsroom, n="12"))
    further = held(page, "&n=24", page.locator("#further").scroll_into_view_if_needed)
    press(page, "#e-1-LOC")
    page.wait_for_selector("#e-1-LOC.on")
    filtered = shown(page.content())
    let_go(page, further)
    assert "entity=Graz" in page.url and shown(page.content()) == filtered

    before = held(page, "leave=headline.2", lambda: press(page, "#w-headline-2"))
    press(page, "#e-1-LOC")
    page.wait_for_selector("#e-1-LOC:not(.on)")
    let_go(page, before)
    assert "leave" not in page.url and page.locator("#w-headline-2.out").count() == 0

    back = held(page, "entity=Graz", page.go_back)
    press(page, "#w-headline-4")
    page.wait_for_selector("#w-headline-4.out")
    assert back.request.failure == "net::ERR_ABORTED"
    assert "leave=headline.4" in page.url and page.locator("#w-headline-4.out").count() == 1


def test_what_was_cut_off_can_be_pressed_again(browser: Browser, newsroom: Newsroom) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(address(newsroom, n="12"))
        cut = held(page, "entity=Graz", lambda: press(page, "#e-1-LOC"))
        with page.expect_event("requestfailed", lambda request: request == cut.request):
            cut.abort()
        press(page, "#e-1-LOC")
        page.wait_for_selector("#e-1-LOC.on")


def test_the_first_press_of_tab_leads_past_the_navigation(page: Page, newsroom: Newsroom) -> None:
    page.goto(f"{newsroom.url}/documents?index={newsroom.news}")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert focused(page) == "main"


def test_documents_that_mean_harm_are_text(page: Page, newsroom: Newsroom) -> None:
    texts = dict.fromkeys(TEXTS, f"{EVIL} {{{{ 7 * 7 }}}} Graz")
    page.goto(address(newsroom, texts, index=newsroom.evil) + "&entity=" + "%3Cscript%3E" * 3)
    assert "Nothing is called" in str(page.text_content("main"))
    page.goto(address(newsroom, texts, index=newsroom.evil) + "&rank=fused")
    page.wait_for_selector("a.open img")
    assert page.locator("p.name", has_text="<script>window.harmed").count() > 0  # shown as what it is
    assert "49" not in str(page.text_content(".query"))
    page.locator(".w", has_text="script").first.click()
    page.wait_for_selector("a.w.out")
    page.locator(".facets a", has_text="<script>").first.click()
    page.wait_for_selector(".facets a.on")
    for number in range(3):
        page.goto(address(newsroom, texts, index=newsroom.evil) + "")
        with page.expect_navigation():
            page.locator("a.open").nth(number).click()
        assert page.locator("dd", has_text="javascript:").count() == 1
        assert page.locator("main a[href^='javascript:']").count() == 0
    page.goto(f"{newsroom.url}/documents?index={newsroom.evil}&q=%3Cscript%3E")
    assert page.evaluate("window.harmed") is None
    scripts = page.evaluate("[...document.scripts].map(each => new URL(each.src).pathname)")
    assert sorted(scripts) == ["/static/htmx-2.0.11.min.js", "/static/pages.js"]


def test_pages_keep_the_rules_of_wcag_and_fit_their_window(browser: Browser, newsroom: Newsroom) -> None:
    found = address(newsroom)
    context = browser.new_context(locale="de")
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(found)
    large = str(page.get_attribute("a.open", "href"))
    paths = ["/", "/documents", "/nowhere", "/enter", large]
    filtered = f"{found}&entity=Graz&leave=headline.2&date=2020"
    for target in (found, filtered, *(newsroom.url + path for path in paths)):
        check_page(page, target)
    context.close()
