"""Decisions on the pages, without a script: what is written, what is shown again, and what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from newsroom import ROOT, Newsroom, Rivals, searched, served, shown, token_in

from orchestration.decisions.database import open_database
from orchestration.decisions.log import DecisionLog
from orchestration.inference.archive import Archive
from orchestration.pages.settings import PagesSettings
from schemas.decisions import Action, Decision, Objection, Ranking

ARTICLE = {
    "headline": "Talk of the day: Eddie the Helicopter.",
    "lead": "In Bristol people stopped to look.",
    "caption": "An onion.",
    "body": "A camera stood there.\n\nNobody ate the onion. It was <b>old</b>.\nThen a helicopter came.",
}


pytestmark = pytest.mark.slow  # builds the news and trains on them


def lake_of(newsroom: Newsroom) -> Path:
    return Path(newsroom.folder).parents[3]


def logged(newsroom: Newsroom) -> list[tuple[Decision, Ranking]]:
    """Return what is in the log, with the rankings."""
    with DecisionLog(open_database(f"sqlite:///{lake_of(newsroom).parent}/pages.sqlite", must_exist=True)) as log:
        found = list(log.decisions())
        rankings = log.rankings(each.ranking for each in found)
        return [(each, rankings[each.ranking]) for each in found]


def alone(newsroom: Newsroom, folder: Path) -> PagesSettings:
    """Return settings of pages with one index and a database of their own."""
    store = f"sqlite:///{folder}/p.sqlite"
    return PagesSettings(lake=str(lake_of(newsroom)), store=store, indexes=(newsroom.folder,))


def here(answer: httpx.Response) -> str:
    return answer.url.raw_path.decode("ascii")


def decide(client: httpx.Client, page: httpx.Response, image: str, action: str, **fields: str) -> httpx.Response:
    """Send what a button of a picture sends."""
    form = re.search(rf'id="decide-{image[:12]}".*?</form>', page.text, re.DOTALL)
    assert form is not None
    then = re.search(r'name="then" value="([^"]*)"', form[0])
    assert then is not None
    data = {
        "csrf": token_in(page.text),
        "then": then[1].replace("&amp;", "&"),
        "image": image,
        "action": action,
        **fields,
    }
    return client.post("/decisions", data=data)


def test_a_choice_is_in_the_log_with_what_was_shown(newsroom: Newsroom, archive: Archive) -> None:
    before = len(logged(newsroom))
    with newsroom.client() as client:
        page = searched(client, ARTICLE, index=newsroom.news)
        images = shown(page.text)
        page = client.get(f"{here(page)}&rank=fused&where=date>=2019")
        images = shown(page.text)
        page = decide(client, page, images[2], "choose")
        assert page.status_code == 200 and shown(page.text) == images
        assert f'id="choose-{images[2][:12]}" name="action" value="withdraw" aria-pressed="true"' in page.text
        page = decide(client, page, images[0], "reject", reason="rights", note="  § 22\nKUG\x00 ")
        assert "Rejected: rights" in page.text
        assert decide(client, page, images[2], "withdraw").text.count('aria-pressed="true"') == 1
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


def test_what_a_page_does_not_show_cannot_be_decided(newsroom: Newsroom) -> None:
    before = len(logged(newsroom))
    with newsroom.client() as client:
        page = searched(client, ARTICLE, index=newsroom.news)
        image, token = shown(page.text)[0], token_in(page.text)
        right = {"csrf": token, "then": here(page), "image": image, "action": "choose"}
        for wrong, status in [
            ({"image": "f" * 64}, 400),
            ({"image": "../../../etc/passwd"}, 400),
            ({"action": "publish"}, 400),
            ({"action": "right"}, 400),
            ({"action": "reject"}, 400),
            ({"action": "reject", "reason": "<script>"}, 400),
            ({"then": "https://evil.example/articles/0"}, 400),
            ({"then": "//evil.example"}, 400),
            ({"then": "/decisions"}, 400),
            ({"then": "/articles/0123"}, 404),
            ({"then": "/articles/../../x"}, 400),
            ({"then": f"{right['then']}&where=colour=red"}, 400),
            ({"csrf": "0" * 64}, 403),
        ]:
            answer = client.post("/decisions", data={**right, **wrong})
            assert answer.status_code == status, (wrong, answer.text[-500:])
            assert "Traceback" not in answer.text and "<script>" not in answer.text.replace("<script src", "")
        assert client.post("/decisions", data=right, headers={"Origin": "https://evil.example"}).status_code == 403
        assert client.get("/decisions?before=x").status_code == 400
    assert len(logged(newsroom)) == before


def test_who_decided_is_whom_the_proxy_names(newsroom: Newsroom, tmp_path: Path) -> None:
    settings = PagesSettings(
        lake=str(lake_of(newsroom)),
        store=f"sqlite:///{tmp_path}/p.sqlite",
        indexes=(newsroom.folder,),
        user_header="X-User",
    )
    with served(settings) as server, server.client(headers={"X-User": "Jo\tDöe".encode()}) as client:
        page = searched(client, ARTICLE)
        page = decide(client, page, shown(page.text)[0], "shortlist")
        assert "by Jo D" in page.text


def test_nothing_acknowledged_is_lost_when_the_pages_are_killed(newsroom: Newsroom, tmp_path: Path) -> None:
    """The command itself, killed while browsers write."""
    store = f"sqlite:///{tmp_path}/killed.sqlite"
    command = [
        sys.executable,
        "-m",
        "orchestration",
        "pages",
        "--lake",
        str(lake_of(newsroom)),
        "--index",
        newsroom.folder,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MULTILINK")}
    with subprocess.Popen(
        [*command, "--index", newsroom.folder, "--port", "0", "--store", store, "--json"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment | {"PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        url, acknowledged = json.loads(process.stdout.readline())["address"], []
        with httpx.Client(base_url=url, timeout=120, follow_redirects=True) as client:
            page = searched(client, ARTICLE)
            for image in shown(page.text)[:6]:
                assert decide(client, page, image, "shortlist").status_code == 200
                acknowledged.append(image)
            process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    with DecisionLog(open_database(store, must_exist=True)) as log:
        found = list(log.decisions())
        assert [each.image for each in found] == acknowledged and log.rankings([found[0].ranking])


def test_champion_and_challenger_are_compared_blind(rivals: Rivals) -> None:
    """Whose a picture is stands in the log alone."""
    with rivals.client() as client:
        key = here(searched(client, ARTICLE)).split("/")[2].partition("?")[0]
        assert "Eddie the Helicopter" in client.get("/comparison").text
        page = client.get(f"/comparison/{key}")
        images = shown(page.text)
        elsewhere = searched(client, ARTICLE)
        decide(client, elsewhere, shown(elsewhere.text)[0], "choose")  # with probabilities: no part of the comparison
        assert "true" not in re.findall('aria-pressed="([a-z]+)"', client.get(f"/comparison/{key}").text)
        assert len(images) == 20 and shown(client.get(f"/comparison/{key}").text) == images
        assert "<meter" not in page.text and "models:/" not in page.text
        assert "%" not in re.sub(r"%[0-9A-F]{2}", "", page.text)
        page = decide(client, page, images[0], "choose")
        assert shown(page.text) == images and page.text.count('aria-pressed="true"') == 1
        result = client.get("/comparison").text
        assert "No difference can be told yet" in result and result.count("won 1 article<") == 1
        assert "models:/" not in client.get("/decisions").text
    with DecisionLog(open_database(rivals.store)) as log:
        decision = next(each for each in log.decisions() if each.is_blind)
        ranking = log.rankings([decision.ranking])[decision.ranking]
    assert decision.model == "" and ranking.models == ("models:/searcher/1", "models:/searcher/2")
    tops = {}
    for number, index in enumerate(rivals.indexes, start=1):
        with Archive(index) as opened:
            top = opened.search(**ARTICLE, language="en", top=100).images
            tops[f"models:/searcher/{number}"] = [each.picture.image for each in top]
    before: list[str] = []
    for each in ranking.pictures:  # each model gave its best that was not there yet
        assert each.image == next(image for image in tops[each.model] if image not in before)
        assert each.similarity is None and each.probability is None
        before.append(each.image)


def test_a_comparison_of_one_model_is_refused(newsroom: Newsroom, tmp_path: Path) -> None:
    settings = PagesSettings(
        lake=str(lake_of(newsroom)), store=f"sqlite:///{tmp_path}/p.sqlite", indexes=(newsroom.folder,)
    )
    with served(settings) as server, server.client() as client:
        key = here(searched(client, ARTICLE)).split("/")[2].partition("?")[0]
        assert client.get(f"/comparison/{key}").status_code == 404
        assert "needs the indexes of two models" in client.get("/comparison").text
