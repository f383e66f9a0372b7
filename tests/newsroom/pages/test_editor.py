"""An editor's work in a real Chromium: from a pasted article to the data set that is made of the decision."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from editor_task import EditorTask
from running_newsroom import Newsroom, Rivals, check_page, focused, searched, shown

from multilink.datasets import open_dataset
from newsroom.decisions.database import open_database
from newsroom.decisions.records import Action, article_digest
from newsroom.decisions.store import Store
from orchestration.cli import run
from schemas.features import column_to_vectors

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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


def test_a_pasted_article_becomes_a_decision_in_the_exported_data_set(
    page: Page, newsroom: Newsroom, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page.goto(f"{newsroom.url}/?index={newsroom.news}")
    page.fill("#pasted", "\n\n".join(TEXTS.values()))
    with page.expect_navigation():
        page.get_by_role("button", name="Find pictures").click()
    before = str(page.text_content("[data-announce]"))
    page.locator(".names a.chip", has_text="Graz").first.click()
    page.wait_for_selector(".names a.chip.on")
    page.wait_for_selector("a.open")
    assert page.text_content("[data-announce]") != before
    image = shown(page.content())[1]
    page.focus(f"#choose-{image[:12]}")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#decide-{image[:12]}[data-standing=choose]")
    assert focused(page) == f"choose-{image[:12]}" and "entity=Graz" in page.url  # the editor stays where he was
    page.goto(f"{newsroom.url}/decisions")
    assert page.locator("td", has_text="chosen").count() >= 1
    assert page.locator(f"img[src*='{image}']").first.evaluate("each => each.naturalWidth") > 0

    lake = Path(newsroom.folder).parents[3]
    store = ["--lake", str(lake), "--store", f"sqlite:///{lake.parent}/pages.sqlite"]
    assert run(["decisions", "export", *store, "--output", str(tmp_path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert run([*summary["build"], "--set", "features.sentences=[]"]) == 0
    dataset = open_dataset("decisions", lake=str(lake))
    rows = [row for split in dataset.splits for row in dataset.table("documents", split=split).to_pylist()]
    (row,) = [row for row in rows if row["sentences"][0]["text"] == TEXTS["headline"]]
    assert {(each["sentence"], each["image"]) for each in row["links"]} == {(0, 0), (1, 0), (2, 0)}
    exported = [json.loads(line) for line in Path(summary["path"]).read_text(encoding="utf-8").splitlines()]
    (record,) = [each for each in exported if each["sentences"][0]["text"] == TEXTS["headline"]]
    assert Path(record["images"][0]["path"]).stem == image and row["language"] == "de"
    table = dataset.table("images", split=row["split"])
    assert column_to_vectors(table.column("features.efficientnet-lite0")).shape == (len(table), 1280)


def test_a_picture_is_rejected_with_a_reason_by_keys_alone(page: Page, newsroom: Newsroom) -> None:
    page.goto(address(newsroom, "Abgelehnt."))
    image = shown(page.content())[3][:12]
    page.focus(f"#reject-{image}")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#reason-{image}")
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
    page.click(f"#reject-{image}")  # and taken back
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


def beside(page: Page) -> dict[str, list[str]]:
    """Return the pictures beside each paragraph."""
    found: dict[str, list[str]] = page.evaluate(
        """Object.fromEntries([...document.querySelectorAll("[data-paragraph]")].map((each) => [each.dataset.paragraph,
        [...each.querySelectorAll("[data-place]")].map((figure) => figure.dataset.place.slice(0, 12))]))"""
    )
    return found


def test_pictures_are_dragged_to_paragraphs_and_moved_by_keys(page: Page, newsroom: Newsroom) -> None:
    page.goto(address(newsroom, "Gezogen."))
    images = [image[:12] for image in shown(page.content())[:2]]
    for image in images:
        page.click(f"#shortlist-{image}")
        page.wait_for_selector(f"#decide-{image}[data-standing=shortlist]")
    with page.expect_navigation():
        page.click("#to-placement")
    page.set_viewport_size({"width": 1400, "height": 2400})  # a drag scrolls nothing
    proposed = beside(page)
    assert sorted(chain(*proposed.values())) == sorted(images) and set(proposed) == {"0", "1", "2", "-"}
    for target in ("2", "-", "0"):
        with page.expect_navigation():
            page.drag_and_drop(f"#at-{images[0]} img", f"[data-paragraph='{target}'] > p")
        assert images[0] in beside(page)[target] and "place=" in page.url
    stays = next(number for number, there in beside(page).items() if images[1] in there)
    down = page.locator(f"#at-{images[0]}").get_by_role("link", name="Down")
    down.focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert images[0] in beside(page)["1"] and images[1] in beside(page)[stays]
    assert focused(page) == f"at-{images[0]}"  # so that Tab goes on with its buttons
    page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")  # Up
    assert images[0] in beside(page)["0"]
    assert page.locator(".placed").count() == 2


def test_without_a_script_forms_and_links_do_the_same(browser: Browser, newsroom: Newsroom) -> None:
    context = browser.new_context(java_script_enabled=False, locale="de")
    page = context.new_page()
    page.goto(address(newsroom, "Ohne Skript."))
    image = shown(page.content())[5][:12]
    page.click(f"#shortlist-{image}")
    page.wait_for_selector(f"#decide-{image}[data-standing=shortlist]")
    assert page.url.endswith(f"#decide-{image}")
    page.click("#to-placement")
    page.locator(f"#at-{image}").get_by_role("link", name=re.compile("Hinauf|Hinunter")).first.click()
    assert "place=" in page.url and page.locator(f"#at-{image}").count() == 1
    page.go_back()
    page.go_back()
    page.click(f"#shortlist-{image}")
    page.wait_for_selector(f"#decide-{image}[data-standing='']")
    context.close()


def test_the_pages_keep_the_rules_of_wcag_and_fit_their_window(browser: Browser, rivals: Rivals) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, locale="fr")
    page = context.new_page()
    with rivals.client() as client:
        key = searched(client, TEXTS).url.path.split("/")[2]
        images = shown(client.get(f"/comparison/{key}").text)
    page.goto(f"{rivals.url}/comparison/{key}")
    for action, image in zip(("choose", "shortlist"), images[2:4], strict=True):
        page.click(f"#{action}-{image[:12]}")
        page.wait_for_selector(f"#decide-{image[:12]}[data-standing={action}]")
    page.wait_for_selector(".htmx-request, .htmx-swapping, .htmx-settling", state="detached")
    places = f"place={images[0]}&place={images[1]}:1&place={images[2]}:-"
    check_page(page)
    for path in ("/comparison", "/decisions", f"/placement/{key}?{places}", f"/articles/{key}"):
        check_page(page, rivals.url + path)
    context.close()


def test_a_whole_task_needs_no_mouse(page: Page, rivals: Rivals) -> None:
    """Paste, filter, choose, undo, compare blind, place."""
    task = EditorTask(page)
    texts = {**TEXTS, "headline": "Ohne Maus."}
    image = task.run(rivals.url, texts)
    steps = "paste", "filter", "choose", "choose another", "undo", "compare", "choose blind", "place", "move"
    assert task.steps == [*steps]
    with Store(open_database(rivals.store)) as log:
        decided = [(each.action, each.image, each.is_blind) for each in log.decisions(article=article_digest(texts))]
    chosen, other, back, blind = decided
    assert chosen == (Action.CHOOSE, image, False) and other[0] is Action.CHOOSE
    assert back == (Action.WITHDRAW, other[1], False) and blind[0] is Action.CHOOSE and blind[2]
    placed = {picture for there in beside(page).values() for picture in there}
    assert placed == {image[:12], blind[1][:12]}  # what was chosen blind was chosen, too
