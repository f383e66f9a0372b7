import json

import numpy as np
import pytest

from training.registry.promotion import Policy, decide


def _scores(values: np.ndarray) -> dict[str, float]:
    return {f"d{number}": float(value) for number, value in enumerate(values)}


def _normal(mean: float, *, seed: int, count: int = 200) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal(mean, 10, count), 0, 100)


def test_first_model_that_beats_random_is_promoted() -> None:
    decision = decide(_scores(_normal(70, seed=1)), None)
    assert decision.is_promoted
    assert decision.champion is None and decision.difference is None
    assert "beats random" in decision.reasons[0] and "no champion" in decision.reasons[1]


def test_a_model_like_random_is_not_promoted_even_without_champion() -> None:
    decision = decide(_scores(_normal(50, seed=2)), None)
    assert not decision.is_promoted
    assert "is not shown to beat random" in decision.reasons[0]


def test_worse_than_champion_is_refused_though_each_interval_overlaps() -> None:
    champion = _normal(70, seed=3)
    noise = np.random.default_rng(4).normal(0.5, 1, len(champion))
    decision = decide(_scores(champion - noise), _scores(champion))
    assert decision.champion is not None and decision.difference is not None
    assert decision.candidate.high > decision.champion.low  # unpaired intervals would not have told
    assert decision.difference.high < 0
    assert not decision.is_promoted
    assert "worse than the champion" in decision.reasons[1]


def test_a_difference_that_reaches_zero_is_not_worse() -> None:
    champion = _normal(70, seed=5)
    candidate = champion + np.random.default_rng(6).normal(0, 5, len(champion))
    decision = decide(_scores(candidate), _scores(champion))
    assert decision.is_promoted and "not worse" in decision.reasons[1]


def test_the_same_scores_are_not_worse_and_better_ones_are_better() -> None:
    champion = _normal(70, seed=7)
    assert decide(_scores(champion), _scores(champion)).is_promoted
    better = decide(_scores(champion + 1), _scores(champion))
    assert better.difference is not None and better.difference.mean == pytest.approx(1)
    assert "better than the champion" in better.reasons[1]


def test_documents_must_be_the_same() -> None:
    with pytest.raises(ValueError, match="same documents"):
        decide({"a": 60.0, "b": 70.0}, {"a": 60.0, "c": 70.0})


def test_order_of_the_champions_documents_does_not_matter() -> None:
    candidate, champion = _scores(_normal(70, seed=8)), _scores(_normal(69, seed=9))
    assert decide(candidate, champion) == decide(candidate, dict(reversed(champion.items())))


def test_decision_is_json() -> None:
    values = json.loads(json.dumps(decide({"a": 60.0, "b": 70.0}, None, Policy(resamples=100)).to_json()))
    assert values["is_promoted"] is True
    assert values["candidate"] == {"mean": 65.0, "low": 60.0, "high": 70.0}
    assert values["policy"]["resamples"] == 100
