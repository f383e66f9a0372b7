"""The sensors' rules, as tables from a state to what is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestration.rules.decisions import (
    DatasetState,
    ModelState,
    decide_linking,
    decide_promotion,
    decide_training,
)

NOSTRUCT = ModelState(objective="nostruct", name="multilink-diy-nostruct")
CROSS = ModelState(objective="cross-document", name="multilink-diy-cross-document")
NEW = DatasetState(name="diy", version="v2", made_in="r2", is_sound=True, is_busy=False, models=(NOSTRUCT, CROSS))
DONE = frozenset({"v1", "v2"})


def keys(requests: list) -> list[str]:
    return [request.key for request in requests]


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (NEW, ["train:diy@v2:nostruct:r2", "train:diy@v2:cross-document:r2"]),
        (replace(NEW, models=(replace(NOSTRUCT, trained_on=DONE), CROSS)), ["train:diy@v2:cross-document:r2"]),
        (replace(NEW, models=(replace(CROSS, trained_on=frozenset({"v1"})),)), ["train:diy@v2:cross-document:r2"]),
        (replace(NEW, models=(replace(NOSTRUCT, trained_on=DONE), replace(CROSS, trained_on=DONE))), []),
        (replace(NEW, models=()), []),
        (replace(NEW, is_sound=False), []),
        (replace(NEW, is_busy=True), []),
        (replace(NEW, version=None), []),
    ],
)
def test_a_sound_new_version_is_trained_on_once_per_objective(state: DatasetState, wanted: list[str]) -> None:
    assert keys(decide_training([state])) == wanted
    assert keys(decide_training([state, state])) == wanted * 2  # data sets do not hinder each other


CHALLENGED = replace(CROSS, trained_on=DONE, challenger="7", challenger_data="v2")
COMPARED = replace(NOSTRUCT, trained_on=DONE)


@pytest.mark.parametrize(
    ("models", "wanted"),
    [
        ((COMPARED, CHALLENGED), ["promote:multilink-diy-cross-document/7:r2"]),
        ((CHALLENGED,), ["promote:multilink-diy-cross-document/7:r2"]),  # NoStruct is not configured
        ((NOSTRUCT, CHALLENGED), []),  # NoStruct of this version is still to come
        ((COMPARED, replace(CHALLENGED, is_judged=True)), []),
        ((COMPARED, replace(CHALLENGED, approved_by="Ann")), ["promote:multilink-diy-cross-document/7:r2:Ann"]),
        ((COMPARED, replace(CHALLENGED, challenger_data="v1")), []),  # a challenger of older data
        ((COMPARED, replace(CHALLENGED, challenger=None)), []),
        (
            (replace(COMPARED, challenger="3", challenger_data="v2"), CHALLENGED),
            ["promote:multilink-diy-cross-document/7:r2"],  # a baseline is not promoted
        ),
    ],
)
def test_a_challenger_is_judged_once(models: tuple[ModelState, ...], wanted: list[str]) -> None:
    assert keys(decide_promotion([replace(NEW, models=models)])) == wanted
    assert decide_promotion([replace(NEW, models=models, is_busy=True)]) == []
    assert decide_promotion([replace(NEW, models=models, is_sound=False)]) == []


JUDGED = replace(CHALLENGED, is_judged=True)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (replace(JUDGED, champion="7"), ["link:diy@v2:multilink-diy-cross-document/7:r2"]),
        (replace(JUDGED, champion="6"), ["link:diy@v2:multilink-diy-cross-document/6:r2"]),  # refused, or rolled back
        (replace(JUDGED, champion="7", is_applied=True), []),
        (replace(JUDGED, champion="6", trained_on=frozenset({"v1"})), []),  # the version is still to be trained on
        (replace(JUDGED, champion="6", is_judged=False), []),
        (JUDGED, []),
        (replace(JUDGED, objective="nostruct", champion="7"), []),  # promoted by hand
    ],
)
def test_a_champion_links_the_newest_version_once(model: ModelState, wanted: list[str]) -> None:
    assert keys(decide_linking([replace(NEW, models=(model,))])) == wanted
    assert decide_linking([replace(NEW, models=(model,), is_busy=True)]) == []


def test_a_request_says_what_it_is_about() -> None:
    (first, _) = decide_training([NEW])
    assert (first.dataset, first.objective, first.kinds, first.version) == ("diy", "nostruct", ("trained_model",), "v2")


@pytest.mark.parametrize(
    ("decide", "models"),
    [
        (decide_training, (CROSS,)),
        (decide_promotion, (COMPARED, CHALLENGED)),
        (decide_linking, (replace(JUDGED, champion="7"),)),
    ],
)
def test_what_failed_for_good_is_asked_for_again_after_the_next_rebuild_and_not_before(
    decide: Callable[[list[DatasetState]], list], models: tuple[ModelState, ...]
) -> None:
    """Dagster grants a key once: with the version alone in it, nothing was asked for again until there was another."""
    state = replace(NEW, models=models)
    assert keys(decide([state])) == keys(decide([state]))
    rebuilt = replace(state, made_in="r3")  # the same version
    assert keys(decide([state])) != keys(decide([rebuilt])) != []
