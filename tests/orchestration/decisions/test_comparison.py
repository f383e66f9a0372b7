"""Champion and challenger compared blind: the list that is shown, and the result that the log gives."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestration.decisions.log import DecisionLog
from orchestration.decisions.rankings import interleaved
from schemas.decisions import Action, Decision, Ranking, ShownPicture
from schemas.errors import UsageError
from training.retrieval.queries import Query

if TYPE_CHECKING:
    from conftest import Archive, Multilink

MODELS = ("models:/m/1", "models:/m/2")


def index(model: str, dataset: str = "archive@1") -> Any:
    return SimpleNamespace(manifest=SimpleNamespace(model=model, dataset=dataset))


def found(*images: str) -> Any:
    return SimpleNamespace(images=[SimpleNamespace(picture=SimpleNamespace(image=image)) for image in images])


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
    with pytest.raises(UsageError, match="expected an article's text"):
        interleaved(Query(picture="x.jpg"), [index("m"), index("n")], results)


def shown(built: Archive, article: int) -> Ranking:
    """The challenger gives the cat and the coffee, the champion the others."""
    of = {"cat": MODELS[1], "coffee": MODELS[1], "flower": MODELS[0], "rocket": MODELS[0]}
    pictures = tuple(ShownPicture(image=image, score=0, model=of[name]) for name, image in built.images.items())
    return Ranking(texts={"lead": f"{article}"}, models=MODELS, dataset=built.dataset, pictures=pictures)


def test_the_result_counts_articles_by_the_last_choices(built: Archive, log: DecisionLog, command: Multilink) -> None:
    def said(article: int, name: str, action: Action = Action.CHOOSE) -> None:
        decision = Decision(action=action, image=built.images[name], dataset=built.dataset)
        log.decide(decision, shown(built, article))

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
    for article, action in ((13, Action.CHOOSE), (0, Action.WITHDRAW)):  # elsewhere, with probabilities: not blind
        single = replace(shown(built, article), models=MODELS[:1])
        seen = Decision(action=action, image=built.images["cat"], dataset=built.dataset, model=MODELS[0])
        log.decide(seen, single)
    lines = command("decisions", "compare", "--lake", built.lake, "--json")
    (result,) = json.loads(lines[-1])["comparisons"]
    assert (result["champion"], result["challenger"]) == MODELS
    assert [result["result"][name] for name in ("first", "second", "ties")] == [1, 9, 1]
    assert result["result"]["share"] == 0.9 and result["outcome"] == "challenger"
    assert result["result"]["p_value"] == pytest.approx(2 * 11 / 1024)
    assert lines[1].split() == ["articles:", "champion", "1,", "challenger", "9,", "even", "1"]
    assert lines[3].strip() == "the challenger is preferred"
    elsewhere = {shown(built, article).article for article in (0, 13)}
    listed = command("decisions", "list", "--lake", built.lake, "--json")[-1]
    rows = json.loads(listed)["decisions"]
    assert {row["model"] for row in rows if row["article"] not in elsewhere} == {
        ""
    }  # nobody is told whose a picture was
