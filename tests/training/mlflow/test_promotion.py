import json
from collections.abc import Mapping

import numpy as np
import pytest

from training.evaluation.links import LinkScore
from training.mlflow.gate import Check, Contest, Decision, Guard, Minimum, Policy, decide, refuse


def _scores(values: np.ndarray, *, precision: float = 50.0) -> dict[str, LinkScore]:
    return {f"d{number}": LinkScore(float(value), precision, precision) for number, value in enumerate(values)}


def _decide(candidate: np.ndarray, champion: np.ndarray | None = None, policy: Policy | None = None) -> Decision:
    rival = None if champion is None else _scores(champion)
    return decide(Contest(dataset="diy@v1", candidate=_scores(candidate), champion=rival), policy or Policy())


def _checks(decision: Decision) -> Mapping[str, Check]:
    return {check.name: check for check in decision.checks}


def _normal(mean: float, *, seed: int, count: int = 200) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal(mean, 10, count), 0, 100)


def test_first_model_that_beats_random_is_promoted() -> None:
    decision = _decide(_normal(70, seed=1))
    assert decision.is_promoted
    assert decision.champion is None and decision.difference is None
    assert "beats random" in decision.reasons[0] and "no champion" in decision.reasons[1]


def test_a_model_like_random_is_not_promoted_even_without_champion() -> None:
    decision = _decide(_normal(50, seed=2))
    assert not decision.is_promoted
    assert "is not shown to beat random" in decision.reasons[0]


def test_worse_than_champion_is_refused_though_each_interval_overlaps() -> None:
    champion = _normal(70, seed=3)
    noise = np.random.default_rng(4).normal(0.5, 1, len(champion))
    decision = _decide(champion - noise, champion)
    assert decision.champion is not None and decision.difference is not None
    assert decision.candidate.high > decision.champion.low  # unpaired intervals would not have told
    assert decision.difference.high < 0
    assert not decision.is_promoted
    assert "worse than the champion" in decision.reasons[1]


def test_a_difference_that_reaches_zero_is_not_worse() -> None:
    champion = _normal(70, seed=5)
    candidate = champion + np.random.default_rng(6).normal(0, 5, len(champion))
    decision = _decide(candidate, champion)
    assert decision.is_promoted and "not worse" in decision.reasons[1]


def test_the_same_scores_are_not_worse_and_better_ones_are_better() -> None:
    champion = _normal(70, seed=7)
    assert _decide(champion, champion).is_promoted
    better = _decide(champion + 1, champion)
    assert better.difference is not None and better.difference.mean == pytest.approx(1)
    assert "better than the champion" in better.reasons[1]


def test_documents_must_be_the_same() -> None:
    ours = _scores(np.array([60.0, 70.0]))
    with pytest.raises(ValueError, match="same documents"):
        Contest(dataset="diy@v1", candidate=ours, champion={"d0": ours["d0"]})
    with pytest.raises(ValueError, match="found none"):
        Contest(dataset="diy@v1", candidate={})


def test_order_of_the_champions_documents_does_not_matter() -> None:
    candidate, champion = _scores(_normal(70, seed=8)), _scores(_normal(69, seed=9))
    turned = dict(reversed(champion.items()))
    decisions = [decide(Contest(dataset="diy@v1", candidate=candidate, champion=rival)) for rival in (champion, turned)]
    assert decisions[0] == decisions[1]


def test_every_minimum_that_is_named_must_be_reached() -> None:
    policy = Policy(minimum=Minimum(auc=65, precision_at_1=60))
    checks = _checks(_decide(_normal(70, seed=1), policy=policy))
    assert checks["minimum auc"].is_passed and not checks["minimum precision_at_1"].is_passed
    assert "minimum precision_at_5" not in checks
    assert checks["minimum precision_at_1"].reason == "p@1 50.00 (50.00 to 50.00) does not reach the minimum of 60"
    assert not _decide(_normal(70, seed=1), policy=policy).is_promoted


def test_on_a_guard_set_the_whole_interval_must_lie_above_the_margin() -> None:
    target = _normal(70, seed=1)
    guard = _normal(70, seed=2)
    contest = Contest(dataset="rqa@v3", candidate=_scores(guard - 1.5), champion=_scores(guard))
    rivals = Contest(dataset="diy@v1", candidate=_scores(target), champion=_scores(target))
    for margin, is_kept in ((2.0, True), (1.5, True), (1.0, False)):
        policy = Policy(guards=(Guard(dataset="rqa", margin=margin),))
        decision = decide(rivals, policy, guards={"rqa": contest})
        assert _checks(decision)["guard rqa"].is_passed is is_kept
        assert decision.is_promoted is is_kept
    assert "on rqa@v3: AUC differs by -1.50 (-1.50 to -1.50)" in _checks(decision)["guard rqa"].reason


def test_a_guard_set_is_nothing_to_a_first_champion_but_never_left_out_beside_one() -> None:
    policy = Policy(guards=(Guard(dataset="rqa"),))
    assert _decide(_normal(70, seed=1), policy=policy).is_promoted
    with pytest.raises(ValueError, match="guard rqa: expected scores"):
        _decide(_normal(70, seed=1), _normal(70, seed=1), policy)


def test_the_data_set_must_be_the_latest_unless_the_policy_says_otherwise() -> None:
    contest = Contest(dataset="diy@v1", candidate=_scores(_normal(70, seed=1)))
    assert decide(contest, latest="diy@v1").is_promoted
    stale = decide(contest, latest="diy@v2")
    assert not stale.is_promoted
    assert stale.reasons[-1] == "scored on diy@v1, but the latest version is diy@v2"
    assert decide(contest, Policy(latest_only=False), latest="diy@v2").is_promoted


def test_a_further_reason_refuses() -> None:
    decision = _decide(_normal(70, seed=1))
    refused = refuse(decision, "unchanged", "the champion changed")
    assert not refused.is_promoted and refused.reasons == (*decision.reasons, "the champion changed")


def test_decision_is_json() -> None:
    values = json.loads(json.dumps(_decide(np.array([60.0, 70.0]), policy=Policy(resamples=100)).to_json()))
    assert values["is_promoted"] is True
    assert values["candidate"] == {"mean": 65.0, "low": 60.0, "high": 70.0}
    assert values["policy"]["resamples"] == 100
    assert [check["name"] for check in values["checks"]] == ["random", "champion"]
