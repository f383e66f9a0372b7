"""Champion and challenger compared blind: the list that is shown, and the result that the log gives."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from archives import Archive

from newsroom.archive.records import Picture
from newsroom.decisions.comparison import comparisons, interleaved, preferred_by_editors
from newsroom.decisions.records import Action, Ranking, ShownPicture
from newsroom.decisions.store import Store
from newsroom.search.queries import Query
from schemas.lake import Lake
from schemas.messages import UsageError
from schemas.metadata import Metadata
from training.metrics.preference import Preference

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
        assert {(picture.similarity, picture.probability) for picture in each.pictures} == {(None, None)}


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


def test_a_later_comparison_on_the_same_articles_takes_nothing_from_an_earlier_one(built: Archive, log: Store) -> None:
    for article in range(12):
        log.decide(built.decision(Action.CHOOSE, "cat"), shown(built, article))
    (second,) = comparisons(log)
    assert (second.result.first, second.result.second, second.outcome) == (0, 12, "challenger")
    third = {MODELS[0]: MODELS[0], MODELS[1]: "models:/m/3"}
    for article in range(12):
        own = shown(built, article)
        pictures = tuple(replace(each, model=third[each.model]) for each in own.pictures)
        other = replace(own, models=tuple(third.values()), pictures=pictures)
        log.decide(built.decision(Action.CHOOSE, "rocket"), other)
        log.decide(built.decision(Action.WITHDRAW, "cat"), other)
    found = {each.challenger: each for each in comparisons(log)}
    assert found[MODELS[1]] == second
    assert (found["models:/m/3"].result.first, found["models:/m/3"].outcome) == (12, "champion")
    compared = [[each.action for each in log.compared(own.article, models)] for models in (MODELS, other.models)]
    assert compared == [[Action.CHOOSE], [Action.CHOOSE, Action.WITHDRAW]]


def test_the_gate_counts_every_version_and_both_orders_of_two_models(built: Archive, log: Store) -> None:
    other, turned = {"dataset": "archive@2"}, {"models": MODELS[::-1]}
    for articles, name, changed in (
        (range(5), "cat", {}),  # the challenger's
        ([4], "rocket", other),  # on another version: the fifth article again, which counts once
        (range(5, 8), "cat", other),
        ([8, 9], "cat", turned),  # when the challenger had become champion
        ([10], "flower", turned),
        ([0, 1], "cat", turned),  # in the other order as well: counts once
    ):
        for article in articles:
            log.decide(built.decision(Action.CHOOSE, name), replace(shown(built, article), **changed))
    store, lake = log._engine.url.render_as_string(hide_password=False), Lake.at(built.lake)
    assert preferred_by_editors(store, lake, *MODELS) == Preference(first=1, second=9, ties=1)
    assert preferred_by_editors(store, lake, *reversed(MODELS)) == Preference(first=9, second=1, ties=1)
    assert preferred_by_editors(store, lake, MODELS[0], "models:/m/3") is None
    found = {each.dataset: each.result.second for each in comparisons(log) if each.champion == MODELS[0]}
    assert found == {built.dataset: 5, "archive@2": 3}


def test_the_result_counts_articles_by_the_last_choices(
    built: Archive, log: Store, command: Callable[..., list[str]]
) -> None:
    assert command("decisions", "compare", "--lake", built.lake) == ["no choice was made in a blind comparison"]
    for article, action, name in (
        *((article, Action.CHOOSE, "cat") for article in range(9)),  # the challenger's
        (0, Action.CHOOSE, "cat"),  # again: counted once
        (9, Action.CHOOSE, "rocket"),
        (10, Action.CHOOSE, "rocket"),
        (10, Action.CHOOSE, "coffee"),  # even
        (11, Action.CHOOSE, "flower"),
        (11, Action.WITHDRAW, "flower"),  # nothing was chosen in the end
        (12, Action.SHORTLIST, "flower"),
        (14, Action.REJECT, "flower"),  # none fits
        (14, Action.REJECT, "cat"),
    ):
        log.decide(built.decision(action, name), shown(built, article))
    for article, action in ((13, Action.CHOOSE), (0, Action.WITHDRAW)):  # elsewhere, with probabilities: not blind
        log.decide(built.decision(action, "cat", model=MODELS[0]), replace(shown(built, article), models=MODELS[:1]))
    lines = command("decisions", "compare", "--lake", built.lake, "--json")
    (result,) = json.loads(lines[-1])["comparisons"]
    assert (result["champion"], result["challenger"], result["outcome"]) == (*MODELS, "open")
    expected = {"first": 1, "second": 9, "ties": 1, "none_fits": 1, "share": 0.9}
    expected |= {"evidence": pytest.approx(Preference(first=1, second=9).evidence)}
    assert {name: result["result"][name] for name in expected} == expected
    assert lines[1].split() == ["articles:", "champion", "1,", "challenger", "9,", "even", "1,", "none", "fits", "1"]
    assert lines[3].strip() == "no difference is established yet"
    elsewhere = {shown(built, article).article for article in (0, 13)}
    rows = json.loads(command("decisions", "list", "--lake", built.lake, "--json")[-1])["decisions"]
    assert {row["model"] for row in rows if row["article"] not in elsewhere} == {
        ""
    }  # nobody is told whose a picture was
