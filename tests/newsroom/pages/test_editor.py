"""An editor's decisions in a real Chromium, by keys and by the mouse."""

import pytest
from playwright.sync_api import Browser, Page
from running_newsroom import Newsroom, Rivals, check_page, focused, searched, shown

pytestmark = pytest.mark.slow  # builds the news and trains on them
TEXTS = {
    "headline": "Gesprächsthema: Neptun, einer der »Gasriesen« in unserem Sonnensystem.",
    "lead": "In Graz blieben die Leute stehen: Ein offenes Vorhängeschloss.",
    "body": "Die Leser fragten. Neptun, einer der »Gasriesen«.\n\nIn Graz war es anders.\n\nEin Vorhängeschloss.",
}


def address(newsroom: Newsroom, lead: str) -> str:
    """Return the address of an article's pictures, likely or not; each test has an article of its own."""
    with newsroom.client() as client:
        return f"{searched(client, {**TEXTS, 'lead': lead}, index=newsroom.news).url}"


def test_a_picture_is_rejected_with_a_reason_by_keys_alone(page: Page, newsroom: Newsroom) -> None:
    page.goto(address(newsroom, "Abgelehnt."))
    image = shown(page.content())[3][:12]
    page.focus(f"#open-{image}")
    page.keyboard.press("x")
    page.wait_for_selector(f"#reason-{image}:focus")
    page.keyboard.type("wrong place")
    page.keyboard.press("Tab")
    page.keyboard.type("that is Vienna")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#decide-{image}[data-standing=reject]")
    assert page.text_content(f"#decide-{image} .state") == "Rejected: wrong place"
    page.reload()
    assert page.text_content(f"#decide-{image} .state") == "Rejected: wrong place"
    page.focus(f"#open-{image}")
    page.keyboard.press("t")  # and taken back
    page.wait_for_selector(f"#decide-{image}[data-standing='']")


def test_keys_choose_list_and_undo_and_the_chosen_stay_in_view(page: Page, newsroom: Newsroom) -> None:
    """One key each, in the picture that has the focus; the first picture is in the upper half of the window."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(address(newsroom, "Tasten."))
    first, second = (image[:12] for image in shown(page.content())[:2])
    assert page.evaluate(f"document.querySelector('#open-{first} img').getBoundingClientRect().top") < 450
    page.focus(f"#open-{first}")
    page.keyboard.press("c")
    page.wait_for_selector(f"#decide-{first}[data-standing=choose]")
    page.keyboard.press("ArrowRight")
    assert focused(page) == f"open-{second}"
    page.keyboard.press("s")
    page.wait_for_selector(f"#decide-{second}[data-standing=shortlist]")
    page.keyboard.press("c")  # what is listed becomes chosen
    page.wait_for_selector("#tray:has-text('(2)')")
    for top in ("0", "document.body.scrollHeight / 2", "document.body.scrollHeight"):
        page.evaluate(f"scrollTo(0, {top})")
        assert page.locator("#tray").evaluate("each => each.getBoundingClientRect().bottom") <= 901, top
    page.wait_for_selector("#pictures > li.picture >> nth=12")  # the page scrolled on
    page.focus(f"#open-{second}")
    page.keyboard.press("u")  # the choice of the second picture
    page.wait_for_selector(f"#decide-{second}[data-standing=shortlist]")
    assert page.locator(f"#decide-{first}").get_attribute("data-standing") == "choose"


def test_a_key_after_a_click_acts_where_the_editor_is(page: Page, newsroom: Newsroom) -> None:
    """Arrows move from wherever letters act; a key for the next picture undid the choice that was just clicked."""
    page.goto(address(newsroom, "Maus."))
    first, second = (image[:12] for image in shown(page.content())[:2])
    page.click(f"#choose-{first}")
    page.wait_for_selector(f"#decide-{first}[data-standing=choose]")
    assert focused(page) == f"open-{first}"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("s")
    page.wait_for_selector(f"#decide-{second}[data-standing=shortlist]")
    assert page.locator(f"#decide-{first}").get_attribute("data-standing") == "choose"
    page.focus(f"#choose-{second}")  # a button of the second picture
    page.keyboard.press("ArrowLeft")
    assert focused(page) == f"open-{first}"


def test_the_pages_keep_the_rules_of_wcag_and_fit_their_window(browser: Browser, rivals: Rivals) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, locale="fr")
    page = context.new_page()
    with rivals.client() as client:
        key = searched(client, TEXTS).url.path.split("/")[2]
        images = shown(client.get(f"/comparison/{key}").text)
    page.goto(f"{rivals.url}/comparison/{key}")
    for letter, action, image in (("c", "choose", images[2]), ("s", "shortlist", images[3])):
        page.focus(f"li:has(#decide-{image[:12]}) a.open")
        page.keyboard.press(letter)
        page.wait_for_selector(f"#decide-{image[:12]}[data-standing={action}]")
    page.wait_for_selector(".htmx-request, .htmx-swapping, .htmx-settling", state="detached")
    check_page(page)
    for path in ("/comparison", "/decisions", f"/articles/{key}"):
        check_page(page, rivals.url + path)
    context.close()
