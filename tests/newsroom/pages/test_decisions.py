"""Decisions on the pages, without a script: what is written, what is shown again, and what is refused."""

import html
import re
from pathlib import Path

import httpx
import pytest
from running_newsroom import Newsroom, Rivals, button, decide, searched, served, shown

from newsroom.decisions.database import open_database
from newsroom.decisions.records import Action, Decision, Objection, Ranking
from newsroom.decisions.store import Store
from newsroom.search.archive import Archive
from schemas.lake import MANIFEST

ARTICLE = {
    "headline": "Talk of the day: Eddie the Helicopter.",
    "lead": "In Bristol people stopped to look.",
    "caption": "An onion.",
    "body": "A camera stood there.\n\nNobody ate the onion. It was <b>old</b>.\nThen a helicopter came.",
}


pytestmark = pytest.mark.slow  # builds the news and trains on them


def logged(newsroom: Newsroom) -> list[tuple[Decision, Ranking]]:
    """Return what is in the log, with the rankings."""
    with Store(open_database(f"sqlite:///{newsroom.lake.parent}/pages.sqlite", must_exist=True)) as log:
        found = list(log.decisions())
        rankings = log.rankings(each.ranking for each in found)
        return [(each, rankings[each.ranking]) for each in found]


def here(answer: httpx.Response) -> str:
    return answer.url.raw_path.decode("ascii")


def test_a_choice_is_in_the_log_with_what_was_shown(newsroom: Newsroom, archive: Archive, client: httpx.Client) -> None:
    before = len(logged(newsroom))
    page = searched(client, ARTICLE, index=newsroom.news)
    page = client.get(f"{here(page)}&rank=fused&where=date>=2019")
    images = shown(page.text)
    page = decide(client, page, images[2], "choose")
    assert page.status_code == 200 and shown(page.text) == images
    assert button(page.text, images[2], "withdraw") and page.text.count('data-standing="choose"') == 1
    page = decide(client, page, images[0], "reject", reason="rights", note="  § 22\nKUG\x00 ")
    assert "Rejected: rights" in page.text
    assert 'data-standing="choose"' not in decide(client, page, images[2], "withdraw").text
    log = client.get("/decisions").text
    assert "taken back" in log and "rejected: rights – § 22 KUG" in log and "Eddie the Helicopter" in log
    (choice, ranking), (rejection, _), (back, _) = logged(newsroom)[before:]
    assert (choice.action, choice.image, choice.model) == (Action.CHOOSE, images[2], "models:/searcher/1")
    assert choice.dataset == ranking.dataset == archive.index.manifest.dataset
    assert (rejection.reason, rejection.note, back.action) == (Objection.RIGHTS, "§ 22 KUG", Action.WITHDRAW)
    assert ranking.texts == {**ARTICLE, "body": ranking.texts["body"]} and ranking.language == "en"
    assert ranking.texts["body"].split() == ARTICLE["body"].split()
    assert ranking.query.startswith("/articles/") and "rank=fused" in ranking.query
    found = archive.search(**ARTICLE, language="en", where=["date>=2019"], rank_by="fused", top=56)
    wanted = {each.picture.image: each for each in found.images}
    assert [each.image for each in ranking.pictures if each.image in images] == images
    for each in ranking.pictures:
        assert each.score == pytest.approx(wanted[each.image].score)
        assert each.probability == pytest.approx(wanted[each.image].probability, abs=1e-5)


def test_what_a_page_does_not_show_cannot_be_decided(newsroom: Newsroom, client: httpx.Client) -> None:
    before = len(logged(newsroom))
    page = searched(client, ARTICLE, index=newsroom.news)
    image = shown(page.text)[0]
    right = button(page.text, image, "choose")
    middle = len(right["shown"]) // 2
    changed = right["shown"][:middle] + ("A" if right["shown"][middle] != "A" else "B") + right["shown"][middle + 1 :]
    for wrong in [
        {"decide": f"choose:{'f' * 64}:0"},
        {"decide": "choose:../../../etc/passwd:0"},
        {"decide": f"publish:{image}:0"},
        {"decide": f"right:{image}:0"},
        {"decide": f"choose:{image}"},
        {"decide": f"choose:{image}:-1"},
        {"decide": ""},
        {"decide": f"reject:{image}:0", "reason": "<script>"},
        {"shown": ""},
        {"shown": changed},
        {"shown": "gAAAAA" + "A" * 200},
    ]:
        answer = client.post("/decisions", data={**right, **wrong})
        assert answer.status_code == 400, (wrong, answer.text[-500:])
        assert "Traceback" not in answer.text and "<script>" not in answer.text.replace("<script src", "")
    for number in ("x", "0", str(10**12)):
        assert client.post("/decisions/undo", data={"number": number}).status_code == 400
    assert client.get("/decisions?before=x").status_code == 400
    assert len(logged(newsroom)) == before


def test_a_click_searches_nothing(newsroom: Newsroom, client: httpx.Client, tmp_path: Path) -> None:
    """What was shown comes with the click: the index may be gone, or another model promoted meanwhile.

    Its manifest stays, since the pages look for indexes now and then, and would not know this one for the next tests.
    """
    parts = [part for part in Path(newsroom.folder).iterdir() if part.name != MANIFEST]
    page = searched(client, {"headline": "A heron."}, index=newsroom.news)
    image = shown(page.text)[1]
    for part in parts:
        part.rename(tmp_path / part.name)
    try:
        answer = client.post("/decisions", data=button(page.text, image, "choose"), headers={"HX-Request": "true"})
    finally:
        for part in parts:
            (tmp_path / part.name).rename(part)
    assert answer.status_code == 200 and 'data-standing="choose"' in answer.text
    decision, ranking = logged(newsroom)[-1]
    assert (decision.image, decision.model, ranking.texts) == (image, "models:/searcher/1", {"headline": "A heron."})
    assert [each.image for each in ranking.pictures][:2] == shown(page.text)[:2] and ranking.indexes == (newsroom.news,)


def test_a_stale_tab_undoes_nothing(newsroom: Newsroom, client: httpx.Client) -> None:
    first = searched(client, {"headline": "An onion, seen twice."}, index=newsroom.news)
    image = shown(first.text)[0]
    second = decide(client, first, image, "choose")
    assert button(second.text, image, "choose") is None and button(second.text, image, "withdraw")
    before = len(logged(newsroom))
    stale = client.post("/decisions", data=button(first.text, image, "choose"))
    assert stale.status_code == 409 and "Somebody decided meanwhile" in stale.text
    part = client.post("/decisions", data=button(first.text, image, "choose"), headers={"HX-Request": "true"})
    assert part.status_code == 409 and 'data-standing="choose"' in part.text and "nothing was changed" in part.text
    assert len(logged(newsroom)) == before
    assert 'data-standing="choose"' in client.get(here(first)).text


def test_undo_puts_back_what_stood_and_says_what_it_does(newsroom: Newsroom, client: httpx.Client) -> None:
    def undo(page: httpx.Response) -> httpx.Response:
        form = re.search(r'name="number" value="(\d+)"><input type="hidden" name="then" value="([^"]*)"', page.text)
        return client.post("/decisions/undo", data={"number": form[1], "then": html.unescape(form[2])})

    def standing(page: httpx.Response) -> list[str]:
        return [each for each in re.findall(r'data-standing="([a-z]*)"', page.text)[:2] if each]

    page = searched(client, {"headline": "A camera, to be undone."}, index=newsroom.news)
    assert 'id="undo"' not in page.text
    images = shown(page.text)
    page = decide(client, page, images[0], "reject", reason="rights", note="n")
    page = decide(client, page, images[0], "choose")
    assert "Chosen (1)" in page.text and "Undo: chosen" in page.text and standing(page) == ["choose"]
    older = page
    page = undo(page)
    assert standing(page) == ["reject"] and "Rejected: rights" in page.text and "Undo: rejected" in page.text
    assert undo(older).status_code == 409
    page = decide(client, page, images[1], "shortlist")
    assert "Shortlist (1)" in page.text
    assert standing(undo(page)) == ["reject"]
    assert [each.action for each, _ in logged(newsroom)][-3:] == ["reject", "shortlist", "withdraw"]
    assert logged(newsroom)[-3][0].note == "n"


def test_a_rejection_without_a_reason_is_asked_for_one(newsroom: Newsroom, client: httpx.Client) -> None:
    before = len(logged(newsroom))
    page = searched(client, {"headline": "A cone."}, index=newsroom.news)
    question = decide(client, page, shown(page.text)[0], "reject")
    assert question.status_code == 200 and 'name="reason"' in question.text and len(logged(newsroom)) == before
    answered = decide(client, question, shown(page.text)[0], "reject", reason="quality")
    assert "Rejected: poor quality" in answered.text and shown(answered.text) == shown(page.text)


def test_who_decided_is_whom_the_proxy_names(newsroom: Newsroom, tmp_path: Path) -> None:
    settings = newsroom.alone(tmp_path, user_header="X-User")
    with served(settings) as server, server.client(headers={"X-User": "Jo\tDöe".encode()}) as client:
        page = searched(client, ARTICLE)
        page = decide(client, page, shown(page.text)[0], "shortlist")
        assert "by Jo D" in page.text


def test_champion_and_challenger_are_compared_blind(rivals: Rivals) -> None:
    """Whose a picture is stands in the log alone."""
    with rivals.client() as client:
        key = here(searched(client, ARTICLE)).split("/")[2].partition("?")[0]
        assert "Eddie the Helicopter" in client.get("/comparison").text
        page = client.get(f"/comparison/{key}")
        images = shown(page.text)
        elsewhere = searched(client, ARTICLE)
        decide(client, elsewhere, shown(elsewhere.text)[0], "choose")  # with probabilities: no part of the comparison
        assert {*re.findall('data-standing="([a-z]*)"', client.get(f"/comparison/{key}").text)} == {""}
        assert len(images) == 20 and shown(client.get(f"/comparison/{key}").text) == images
        assert "<meter" not in page.text and "models:/" not in page.text
        assert "%" not in re.sub(r"%[0-9A-F]{2}", "", page.text) and rivals.url not in page.text
        page = decide(client, page, images[0], "choose")
        assert shown(page.text) == images and page.text.count('data-standing="choose"') == 1
        result = client.get("/comparison").text
        assert "No difference is shown yet" in result and result.count("won 1 article<") == 1
        assert "models:/" not in client.get("/decisions").text
        tray = client.get(f"/articles/{key}").text.partition('id="tray"')[2]
        assert images[0] in tray  # what was chosen blind was chosen, too
    with Store(open_database(rivals.store)) as log:
        decision = next(each for each in log.decisions() if each.is_blind)
        ranking = log.rankings([decision.ranking])[decision.ranking]
    assert decision.model == "" and ranking.models == ("models:/searcher/1", "models:/searcher/2")
    assert [each.image for each in ranking.pictures] == images
    assert {each.model for each in ranking.pictures} == {*ranking.models}


def test_a_comparison_of_one_model_is_refused(newsroom: Newsroom, tmp_path: Path) -> None:
    with served(newsroom.alone(tmp_path)) as server, server.client() as client:
        key = here(searched(client, ARTICLE)).split("/")[2].partition("?")[0]
        assert client.get(f"/comparison/{key}").status_code == 404
        page = client.get("/comparison").text
        assert "no two models to compare yet" in page and "multilink index" not in page
        assert 'href="/comparison"' not in client.get("/decisions").text
