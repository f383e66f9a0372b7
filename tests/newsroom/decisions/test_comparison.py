"""Champion and challenger compared blind: the list that is shown, and the result that the log gives."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from newsroom.archive.records import Picture
from newsroom.decisions.comparison import comparisons, interleaved, preferred_by_editors
from newsroom.decisions.records import Action, Decision, Objection, Ranking, ShownPicture
from newsroom.decisions.store import Store
from newsroom.search.queries import Query
from schemas.errors import UsageError
from schemas.lake import Lake
from schemas.metadata import Metadata
from training.metrics.preference import Preference

if TYPE_CHECKING:
    from conftest import Archive, Multilink

MODELS = ("models:/m/1", "models:/m/2")


def index(model: str, dataset: str = "archive@1") -> Any:
    return SimpleNamespace(manifest=SimpleNamespace(model=model, dataset=dataset))


def found(*images: str) -> Any:
    return SimpleNamespace(
        images=[SimpleNamespace(picture=Picture(image=image, metadata=Metadata())) for image in images]
    )


def test_the_list_is_the_same_every_time_and_says_nothing_of_similarity() -> None:
    results = [found("a" * 64, "b" * 64, "c" * 64), found("c" * 64, "a" * 64, "b" * 64)]
    indexes = [index(model) for model in MODELS]
    shown = [interleaved(Query(texts={"lead": f"text {number}"}), indexes, results) for number in range(40)]
    assert shown == [interleaved(Query(texts={"lead": f"text {number}"}), indexes, results) for number in range(40)]
    assert {each.pictures[0].image[0] for each in shown} == {"a", "c"}  # a coin for each article
    for each in shown:
        assert each.models == MODELS and each.is_blind and {picture.model for picture in each.pictures} == set(MODELS)
        assert all(picture.similarity is None and picture.probability is None for picture in each.pictures)


def test_two_models_over_one_version_are_compared_for_a_text() -> None:
    query, results = Query(texts={"lead": "x"}), [found("a" * 64)] * 2
    for indexes in ([index("m"), index("m")], [index("m"), index("n", "archive@2")]):
        with pytest.raises(UsageError, match="two models over one data set version"):
            interleaved(query, indexes, results)
    with pytest.raises(UsageError, match="needs the text of an article"):
        interleaved(Query(picture="x.jpg"), [index("m"), index("n")], results)


def shown(built: Archive, article: int) -> Ranking:
    """The challenger gives the cat and the coffee, the champion the others."""
    of = {"cat": MODELS[1], "coffee": MODELS[1], "flower": MODELS[0], "rocket": MODELS[0]}
    pictures = tuple(ShownPicture(image=image, score=0, model=of[name]) for name, image in built.images.items())
    return Ranking(texts={"lead": f"{article}"}, models=MODELS, dataset=built.dataset, pictures=pictures)


def decided(built: Archive, name: str, action: Action = Action.CHOOSE) -> Decision:
    reason = Objection.SUBJECT if action is Action.REJECT else None
    return Decision(action=action, image=built.images[name], dataset=built.dataset, reason=reason)


def test_a_later_comparison_on_the_same_articles_takes_nothing_from_an_earlier_one(built: Archive, log: Store) -> None:
    for article in range(12):
        log.decide(decided(built, "cat"), shown(built, article))
    (second,) = comparisons(log)
    store = log._engine.url.render_as_string(hide_password=False)
    assert preferred_by_editors(store, Lake.at(built.lake), *MODELS) == second.result
    assert preferred_by_editors(store, Lake.at(built.lake), *reversed(MODELS)) == Preference(first=12, second=0)
    assert (second.result.first, second.result.second, second.outcome) == (0, 12, "challenger")
    third = {MODELS[0]: MODELS[0], MODELS[1]: "models:/m/3"}
    for article in range(12):
        own = shown(built, article)
        pictures = tuple(replace(each, model=third[each.model]) for each in own.pictures)
        other = replace(own, models=tuple(third.values()), pictures=pictures)
        log.decide(decided(built, "rocket"), other)
        log.decide(decided(built, "cat", Action.WITHDRAW), other)
    found = {each.challenger: each for each in comparisons(log)}
    assert found[MODELS[1]] == second
    assert (found["models:/m/3"].result.first, found["models:/m/3"].outcome) == (12, "champion")
    article = shown(built, 0).article
    assert [each.action for each in log.compared(article, MODELS)] == [Action.CHOOSE]
    assert len(list(log.compared(article, tuple(third.values())))) == 2


def test_the_gate_counts_every_version_and_both_orders_of_two_models(built: Archive, log: Store) -> None:
    def say(article: int, name: str, **changed: Any) -> None:
        log.decide(decided(built, name), replace(shown(built, article), **changed))

    for article in range(5):
        say(article, "cat")  # the challenger's
    for article in range(4, 8):  # on another version: the fifth article again, which counts once
        say(article, "rocket" if article == 4 else "cat", dataset="archive@2")
    for article in range(8, 10):  # when the challenger had become champion
        say(article, "cat", models=tuple(reversed(MODELS)))
    say(10, "flower", models=tuple(reversed(MODELS)))
    for article in (0, 1):  # in the other order as well: counts once
        say(article, "cat", models=tuple(reversed(MODELS)))
    store = log._engine.url.render_as_string(hide_password=False)
    found = preferred_by_editors(store, Lake.at(built.lake), *MODELS)
    assert found == Preference(first=1, second=9, ties=1)
    assert preferred_by_editors(store, Lake.at(built.lake), *reversed(MODELS)) == Preference(first=9, second=1, ties=1)
    assert preferred_by_editors(store, Lake.at(built.lake), MODELS[0], "models:/m/3") is None
    assert {(each.dataset, each.result.second) for each in comparisons(log) if each.champion == MODELS[0]} == {
        (built.dataset, 5),
        ("archive@2", 3),
    }


def test_the_result_counts_articles_by_the_last_choices(built: Archive, log: Store, command: Multilink) -> None:
    def said(article: int, name: str, action: Action = Action.CHOOSE) -> None:
        log.decide(decided(built, name, action), shown(built, article))

    assert command("decisions", "compare", "--lake", built.lake) == ["no choice was made in a blind comparison"]
    for article in range(9):
        said(article, "cat")  # the challenger's
    said(0, "cat")  # again: counted once
    said(9, "rocket")
    said(10, "rocket")
    said(10, "coffee")  # even
    said(11, "flower")
    said(11, "flower", Action.WITHDRAW)  # nothing was chosen in the end
    said(12, "flower", Action.SHORTLIST)
    said(14, "flower", Action.REJECT)  # none fits
    said(14, "cat", Action.REJECT)
    for article, action in ((13, Action.CHOOSE), (0, Action.WITHDRAW)):  # elsewhere, with probabilities: not blind
        single = replace(shown(built, article), models=MODELS[:1])
        seen = Decision(action=action, image=built.images["cat"], dataset=built.dataset, model=MODELS[0])
        log.decide(seen, single)
    lines = command("decisions", "compare", "--lake", built.lake, "--json")
    (result,) = json.loads(lines[-1])["comparisons"]
    assert (result["champion"], result["challenger"]) == MODELS
    assert [result["result"][name] for name in ("first", "second", "ties", "none_fits")] == [1, 9, 1, 1]
    assert result["result"]["share"] == 0.9 and result["outcome"] == "open"
    assert result["result"]["evidence"] == pytest.approx(Preference(first=1, second=9).evidence)
    assert lines[1].split() == ["articles:", "champion", "1,", "challenger", "9,", "even", "1,", "none", "fits", "1"]
    assert lines[3].strip() == "no difference is established yet"
    elsewhere = {shown(built, article).article for article in (0, 13)}
    listed = command("decisions", "list", "--lake", built.lake, "--json")[-1]
    rows = json.loads(listed)["decisions"]
    assert {row["model"] for row in rows if row["article"] not in elsewhere} == {
        ""
    }  # nobody is told whose a picture was
