import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schemas.messages import ConfigError, NotFoundError, UsageError
from training.evaluation.evaluate import Evaluation
from training.metrics.intervals import (
    difference_interval,
    documents_needed,
    fewest_documents,
    mean_interval,
    probability_below,
)
from training.metrics.links import DocumentScores, LinkScore, ScoreKind
from training.metrics.preference import Preference
from training.mlflow.gate import (
    APPROVAL,
    Check,
    Contest,
    Decision,
    contest_of,
    decide,
)
from training.mlflow.policy import STANDARD_POLICY, By, Groups, Guard, Measure, Minimum, Policy, read_policy
from training.promotions.record import Approval


def _scores(values: np.ndarray, *, precision: float = 50.0) -> dict[str, LinkScore]:
    return {f"d{number}": LinkScore(float(value), precision, precision) for number, value in enumerate(values)}


def _decide(candidate: np.ndarray, champion: np.ndarray | None = None, policy: Policy | None = None) -> Decision:
    rivals = {} if champion is None else {"champion": _scores(champion)}
    return decide(
        Contest(dataset="diy@v1", split="val", candidate=_scores(candidate), rivals=rivals), policy or Policy()
    )


def _checks(decision: Decision) -> Mapping[str, Check]:
    return {check.name: check for check in decision.checks}


def _normal(mean: float, *, seed: int, count: int = 500) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).normal(mean, 10, count), 0, 100)


def test_a_first_model_is_promoted_where_it_beats_random() -> None:
    decision, like_random = _decide(_normal(70, seed=1)), _decide(_normal(50, seed=2))
    assert decision.is_promoted and _checks(decision)["champion"].measured is None
    assert "beats random" in decision.reasons[0] and "no champion" in decision.reasons[1]
    assert not like_random.is_promoted and "is not shown to beat random" in like_random.reasons[0]


def test_worse_than_champion_is_refused_though_each_interval_overlaps() -> None:
    champion = _normal(70, seed=3, count=500)
    noise = np.random.default_rng(4).normal(2, 1, len(champion))
    decision = _decide(champion - noise, champion)
    own, rival = _checks(decision)["random"].measured, mean_interval(champion)
    difference = _checks(decision)["champion"].measured
    assert own is not None and own.high > rival.low  # unpaired intervals would not have told
    assert difference is not None and difference.high < -1
    assert not decision.is_promoted
    assert decision.reasons[1].startswith("worse than the champion") and "wholly below -1" in decision.reasons[1]


def test_at_most_the_margin_worse_must_be_shown_else_a_person_is_asked() -> None:
    champion = _normal(70, seed=5, count=700)
    noise = np.random.default_rng(6).normal(0, 5, len(champion))
    decision = _decide(champion + noise, champion)
    assert decision.is_promoted
    assert (
        decision.reasons[1].startswith("at most 1 worse than the champion") and "wholly above -1" in decision.reasons[1]
    )
    contest = Contest(
        dataset="diy@v1",
        split="val",
        candidate=_scores((champion + noise)[:30]),
        rivals={"champion": _scores(champion[:30])},
    )
    waiting = decide(contest)
    check = _checks(waiting)["champion"]
    assert waiting.is_waiting and not waiting.is_promoted and check.is_undecided
    assert 437 < check.documents_needed < 800 and f"{check.documents_needed} documents would show it" in check.reason
    approved = decide(contest, approvals=[Approval("Ann")])
    assert approved.is_promoted and approved.approved_by == "Ann"
    worse = replace(contest, candidate=_scores(champion[:30] - 60))
    assert not decide(worse, approvals=[Approval("Ann")]).is_promoted  # shown to be worse: nobody is asked
    sure = decide(contest, Policy(margin=30))
    assert sure.is_promoted and APPROVAL not in _checks(sure)


def test_the_bound_is_the_quantile_of_a_mean_with_exponential_weights() -> None:
    """Of weights that are drawn, and in closed form where all documents are alike or no two are (partial fractions)."""
    draws = np.random.default_rng(0)
    for count in (1, 2, 5, 40):
        values = draws.uniform(0, 100, count)
        weights = draws.standard_exponential((200_000, count + 1))
        is_below = weights[:, :-1] @ values < 40 * weights.sum(axis=1)
        assert probability_below(40, values, np.ones(count)) == pytest.approx(is_below.mean(), abs=0.005)
    rare = np.append(np.full(997, 99.8), np.zeros(3))  # three of a thousand lose everything
    weights = draws.standard_exponential((2000, 1001))
    is_below = weights[:, :-1] @ rare < 99.5 * weights.sum(axis=1)
    assert probability_below(99.5, rare, np.ones(1000)) == pytest.approx(is_below.mean(), abs=0.04)
    distinct = np.array([3.0, 1.0, 0.5, 0.2])
    parts = np.append(distinct - 0.7, -0.7)
    exact = sum(np.prod([a / (a - b) for b in parts if b != a]) for a in parts if a < 0)
    assert probability_below(0.7, distinct, np.ones(4)) == pytest.approx(exact, rel=1e-4)
    for count in (1, 20, 437, 5000):
        assert probability_below(99, np.full(count, 100.0), np.ones(count)) == pytest.approx(0.99**count, rel=1e-4)
    assert fewest_documents(1, level=0.975) == next(n for n in range(1000) if 0.99**n <= 0.0125) == 437
    assert (
        difference_interval(np.zeros(437), level=0.975).low > -1 > difference_interval(np.zeros(436), level=0.975).low
    )


def test_intervals_of_few_constant_and_shared_values() -> None:
    assert difference_interval(np.zeros(0)).high == 100 and mean_interval(np.zeros(0)).low == 0
    only = mean_interval(np.array([100.0]))
    assert (only.low, only.high) == pytest.approx((2.5, 100))
    assert mean_interval(np.full(3, 100.0)).low == pytest.approx(100 * 0.025 ** (1 / 3), rel=1e-3)
    values = np.random.default_rng(1).uniform(0, 100, 40)
    alone, shared = mean_interval(values), mean_interval(np.repeat(values, 5), np.repeat(np.arange(40), 5))
    assert (shared.mean, shared.low, shared.high) == pytest.approx((alone.mean, alone.low, alone.high))
    turned = mean_interval(100 - values)
    assert (100 - turned.high, 100 - turned.low) == pytest.approx((alone.low, alone.high))


def test_documents_needed_are_enough_in_four_of_five_cases() -> None:
    draws, spread, margin = np.random.default_rng(11), 12.0, 2.0
    sample = draws.normal(0, 1, 400)
    sample *= spread / sample.std(ddof=1)
    needed = documents_needed(sample, margin)
    assert ((1.96 + 0.8416) * spread / margin) ** 2 < needed < 500
    found = [difference_interval(row).low >= -margin for row in draws.normal(0, spread, (250, needed))]
    assert 0.76 < np.mean(found) < 0.86
    assert documents_needed(sample[:1], margin) == documents_needed(sample, 0.0) == 0
    assert documents_needed(np.zeros(5), 1.0) == fewest_documents(1.0) == 368
    assert documents_needed(sample, 0.01) == pytest.approx((2.8016 * spread / 0.01) ** 2, rel=0.001)
    assert documents_needed(np.zeros(5), 100.0) == 1
    assert documents_needed(np.zeros(5), 1e-6) == fewest_documents(1e-6) > 3e8  # which are not tried


def test_a_looser_margin_lets_through_what_a_tighter_one_does() -> None:
    draws = np.random.default_rng(3)
    champion = draws.uniform(60, 70, 40)
    changes = np.where(np.arange(40) % 2, 1, -1) * draws.uniform(2, 4, 40)
    shown = [_decide(champion + changes, champion, Policy(margin=margin)) for margin in (2, 20, 50, 100)]
    assert [each.is_promoted for each in shown] == [False, True, True, True]
    assert len({_checks(each)["champion"].measured for each in shown}) == 1


def test_a_candidate_meets_the_best_champion_too_and_later_ones_a_stricter_interval() -> None:
    champion = _normal(70, seed=5, count=600)
    noise = np.random.default_rng(6).normal(0, 4, len(champion))
    contest = Contest(
        dataset="diy@v1", split="val", candidate=_scores(champion + noise), rivals={"champion": _scores(champion)}
    )
    assert decide(contest).is_promoted
    fallen = decide(
        replace(contest, rivals={**contest.rivals, "best champion": _scores(np.clip(champion + 5, 0, 100))})
    )
    assert [check.name for check in fallen.checks if not check.is_passed] == ["best champion"]
    assert "worse than the best champion" in fallen.reasons[2]
    first, fifth = (_checks(decide(replace(contest, attempt=k)))["champion"].measured for k in (1, 5))
    assert first.low > fifth.low
    assert fifth == difference_interval(contest.differences(_scores(champion)), level=0.995)


def test_the_same_files_are_as_good_and_better_scores_are_better() -> None:
    champion = _normal(70, seed=7)
    own = _scores(champion)
    same = decide(Contest(dataset="diy@v1", split="val", candidate=own, rivals={"champion": own}))
    assert same.is_promoted and same.reasons[1] == "its files are those of the champion" and not same.beats_best
    better = _decide(champion + 4.5, champion)
    difference = _checks(better)["champion"].measured
    assert difference is not None and difference.mean == pytest.approx(4.5)
    assert "better than the champion" in better.reasons[1] and better.beats_best


def test_models_that_read_different_texts_are_compared_on_what_both_could_score() -> None:
    ours, theirs = _scores(_normal(70, seed=3, count=60)), _scores(_normal(60, seed=3, count=60))
    theirs = {name: score for name, score in theirs.items() if int(name[1:]) >= 30} | {"x": ours["d0"]}
    decision = decide(
        Contest(dataset="news@v1", split="val", candidate=ours, rivals={"champion": theirs}), Policy(margin=10)
    )
    assert decision.is_promoted and decision.documents == 30
    difference = _checks(decision)["champion"].measured
    assert difference.mean == np.mean([ours[f"d{n}"].auc - theirs[f"d{n}"].auc for n in range(30, 60)])
    apart = {f"other {name}": score for name, score in theirs.items()}
    refused = decide(Contest(dataset="news@v1", split="val", candidate=ours, rivals={"champion": apart}))
    assert not refused.is_promoted
    text = "0 documents of news@v1, split val, could be scored with both models; at least 20 are needed"
    assert _checks(refused)["documents"].reason == text


@pytest.mark.parametrize("scored", [(1, 0), (0, 1)])
def test_of_two_models_of_which_one_has_an_auc_none_is_judged_unasked(scored: tuple[int, int]) -> None:
    scores = [
        DocumentScores(kind=ScoreKind.LINKS, documents=np.arange(each), table=np.full((each, 3), 70.0))
        for each in scored
    ]
    evaluations = [Evaluation(ids=["d0"], scores=each, chance=each, where="diy@v1") for each in scores]
    with pytest.raises(UsageError, match='since they read different texts; set measure = "reciprocal_rank"'):
        contest_of("diy@v1", "val", evaluations, Measure.AUTO)


@pytest.mark.parametrize("count", [1, 2, 5, 19])
def test_few_documents_are_not_enough(count: int) -> None:
    perfect = np.full(count, 100.0)
    assert not _decide(perfect).is_promoted
    assert not _decide(perfect, perfect - 1).is_promoted
    decision = _decide(perfect, perfect - 3, Policy(min_documents=count, margin=99))
    assert _checks(decision)["documents"].is_passed
    assert decision.is_promoted is (count > 5)  # of fewer perfect scores, the mean may still be 50


def _know_nothing(kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Return AUCs of models that know nothing, a row a document: mean 50, standard deviation about 25."""
    numbers = np.random.default_rng([shape[0], *kind.encode()])
    match kind:
        case "symmetric":
            return np.clip(numbers.normal(50, 25, shape), 0, 100)
        case "two-valued":
            return np.where(numbers.random(shape) < 0.5, 25.0, 75.0)
        case "a few very bad":
            return np.where(numbers.random(shape) < 0.2, 0.0, 62.5)
        case "a few very good":
            return np.where(numbers.random(shape) < 0.2, 100.0, 37.5)
        case _:
            return np.where(numbers.random(shape) < 0.02, 1.0, 51.0)


@pytest.mark.parametrize("count", [1, 2, 5, 20, *(pytest.param(n, marks=pytest.mark.trial) for n in (50, 150, 1000))])
@pytest.mark.parametrize("kind", ["symmetric", "two-valued", "a few very bad", "a few very good", "one in fifty"])
def test_a_model_that_knows_nothing_beats_random_in_at_most_one_draw_of_40(kind: str, count: int) -> None:
    draws, ones = 400, np.ones(count)
    columns = _know_nothing(kind, (count, draws)).T
    above, below = (
        np.mean([probability_below(50, column, ones) <= 0.025 for column in each]) for each in (columns, 100 - columns)
    )
    expected = 0.025 + 3 * (0.025 * 0.975 / draws) ** 0.5  # three standard errors of a share of the draws
    assert above <= expected and below <= expected
    if kind == "symmetric" and count >= 150:
        assert above + below > 0.01  # nor is it far wider than it has to be


def test_a_policy_may_listen_to_editors() -> None:
    values = _normal(70, seed=7)
    champion = _scores(values - 3)
    contest = Contest(dataset="diy@v1", split="val", candidate=_scores(values), rivals={"champion": champion})
    policy = Policy(margin=10, editors_preferred=True)
    for preference, is_passed, words in (
        (None, False, "nobody compared it blind"),
        (Preference(first=3, second=5), False, "not shown to prefer either"),
        (Preference(first=12, second=0), False, "prefer the champion: 0 articles for it, 12 for the champion"),
        (Preference(first=0, second=12), True, "prefer it to the champion"),
    ):
        decision = decide(contest, policy, preference=preference)
        assert decision.is_promoted is is_passed and words in _checks(decision)["editors"].reason
    assert decide(replace(contest, rivals={}), policy).is_promoted  # nobody could compare the first model
    assert decide(replace(contest, candidate=champion), policy).is_promoted  # nor one with itself


@pytest.mark.parametrize(
    ("lost", "count", "margin", "unmet"),
    [
        (0.0, 20, 1.0, []),  # too few to show anything: not shown to be worse
        (90.0, 20, 1.0, ["de"]),  # few, and shown to be worse
        (0.0, 600, 1.0, []),
        (4.0, 600, 1.0, ["de"]),
        (0.0, 600, 0.0, []),  # as no number of documents shows without a margin
        (4.0, 600, 0.0, ["de"]),
    ],
)
def test_a_policy_may_name_groups_in_none_of_which_a_candidate_may_fall_back(
    lost: float, count: int, margin: float, unmet: list[str]
) -> None:
    """The other language gains so much that the mean over all documents is better than the champion's."""
    champion = np.clip(_normal(60, seed=1, count=600 + count), 5, 95)
    gain = np.append(np.full(600, 5.0), np.full(count, -lost))
    candidate = np.clip(champion + gain, 0, 100)
    languages = {f"d{number}": "en" if number < 600 else "de" for number in range(600 + count)}
    contest = Contest(
        dataset="diy@v1",
        split="val",
        candidate=_scores(candidate),
        rivals={"champion": _scores(champion)},
        groups={By.LANGUAGE: languages},
    )
    decision = decide(contest, Policy(groups=(Groups(by=By.LANGUAGE),), margin=margin))
    checks = {name: check for name, check in _checks(decision).items() if name.startswith("group")}
    assert {*checks} == {f"group language={name}, champion" for name in ("de", "en")}
    assert [name for name in ("de", "en") if not checks[f"group language={name}, champion"].is_passed] == unmet
    assert decision.is_promoted == (not unmet)
    for free in (decision, decide(contest)):  # the differences are told, whatever the policy asks for
        found = {each.group: each.documents for each in free.differences}
        assert found == {"language=de": count, "language=en": 600}
        assert free.differences[1].points.mean == pytest.approx((candidate - champion)[:600].mean())
    assert not decide(replace(contest, groups={By.LANGUAGE: dict.fromkeys(languages, "en")})).differences
    assert not decide(replace(contest, rivals={})).differences


@pytest.mark.parametrize(
    ("approvers", "by"), [((), "Ann"), (("Bo", "Ann"), "Ann"), (("Bo",), ""), (("Ann:0",), ""), (("Ann:1",), "Ann")]
)
def test_one_of_those_whom_the_policy_names_must_have_approved(approvers: tuple[str, ...], by: str) -> None:
    contest = Contest(dataset="diy@v1", split="val", candidate=_scores(_normal(70, seed=1)))
    decision = decide(contest, Policy(approval=True, approvers=approvers), approvals=[Approval("Ann", ("12",))])
    assert (decision.approved_by, decision.is_promoted, decision.is_waiting) == (by, bool(by), not by)


def test_every_minimum_that_is_named_must_be_reached() -> None:
    policy = Policy(minimum=Minimum(auc=65, precision_at_1=60))
    checks = _checks(_decide(_normal(70, seed=1), policy=policy))
    assert checks["minimum auc"].is_passed and not checks["minimum precision_at_1"].is_passed
    assert "minimum reciprocal_rank" not in checks
    reason = checks["minimum precision_at_1"].reason
    assert reason.startswith("p@1 50.00 (") and reason.endswith(") does not reach the minimum of 60")
    assert not _decide(_normal(70, seed=1), policy=policy).is_promoted


def test_on_a_guard_set_the_whole_interval_must_lie_above_the_margin() -> None:
    target = _scores(_normal(70, seed=1))
    guard = _normal(70, seed=2, count=2000)
    worse = guard + np.tile([2.5, -5.5], 1000)  # by 1.5 points
    contest = Contest(dataset="rqa@v3", split="val", candidate=_scores(worse), rivals={"champion": _scores(guard)})
    rivals = Contest(dataset="diy@v1", split="val", candidate=target, rivals={"champion": target})
    for margin, is_kept in ((2.0, True), (1.6, False), (1.0, False)):
        policy = Policy(guards=(Guard(dataset="rqa", margin=margin),))
        decision = decide(rivals, policy, guards={"rqa": contest})
        assert _checks(decision)["guard rqa"].is_passed is is_kept
        assert decision.is_promoted is is_kept
    assert "on rqa@v3: AUC differs by -1.50 (-1." in _checks(decision)["guard rqa"].reason


def test_a_guard_set_is_nothing_to_a_first_champion_but_never_left_out_beside_one() -> None:
    policy = Policy(guards=(Guard(dataset="rqa"),))
    assert _decide(_normal(70, seed=1), policy=policy).is_promoted
    with pytest.raises(KeyError, match="rqa"):
        _decide(_normal(70, seed=1), _normal(70, seed=1), policy)
    few = Contest(
        dataset="rqa@v3", split="val", candidate=_scores(np.ones(5)), rivals={"champion": _scores(np.zeros(5))}
    )
    own = _scores(_normal(70, seed=1))
    rivals = Contest(dataset="d@v1", split="val", candidate=own, rivals={"champion": own})
    refused = _checks(decide(rivals, policy, guards={"rqa": few}))["guard rqa"]
    assert not refused.is_passed and refused.reason.startswith("5 documents of rqa@v3, split val, could be scored with")


def test_the_data_set_must_be_the_latest_unless_the_policy_says_otherwise() -> None:
    contest = Contest(dataset="diy@v1", split="val", candidate=_scores(_normal(70, seed=1)))
    assert decide(contest, latest="diy@v1").is_promoted
    stale = decide(contest, latest="diy@v2")
    assert not stale.is_promoted and stale.reasons[-1] == "scored on diy@v1, but the latest version is diy@v2"
    assert decide(contest, Policy(latest_only=False), latest="diy@v2").is_promoted


def test_decision_is_json() -> None:
    values = json.loads(json.dumps(_decide(_normal(70, seed=1), policy=Policy(level=0.9)).to_json()))
    assert (values["is_promoted"], values["split"], values["policy"]["level"]) == (True, "val", 0.9)
    assert [check["name"] for check in values["checks"]] == ["random", "champion", "documents"]
    assert values["checks"][0]["measured"]["mean"] == pytest.approx(70, abs=2)


FULL = """
latest_only = false
min_documents = 3

[minimum]
auc = 70
precision_at_1 = 40.5

[[guards]]
dataset = "rqa"
margin = 2

[[guards]]
dataset = "wiki"
"""


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def test_a_file_says_all_there_is_to_say(tmp_path: Path) -> None:
    assert read_policy(_file(tmp_path, FULL)) == Policy(
        latest_only=False,
        min_documents=3,
        minimum=Minimum(auc=70.0, precision_at_1=40.5),
        guards=(Guard(dataset="rqa", margin=2.0), Guard(dataset="wiki")),
    )
    assert read_policy(_file(tmp_path, "")) == read_policy(None) == STANDARD_POLICY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[minimum]\nacu = 70", "unknown key 'minimum.acu'; did you mean 'minimum.auc'"),
        ("lastest_only = true", "unknown key 'lastest_only'; did you mean 'latest_only'"),
        ("[[guards]]\ndataset = 'rqa'\nmargn = 1", "unknown key 'guards.margn'; did you mean 'guards.margin'"),
        ("[[guards]]\nmargin = 1", "guards.dataset = '': expected a name"),
        ("[minimum]\nauc = 100.5", "minimum.auc = 100.5: "),
        ("[minimum]\nauc = 'high'", "minimum.auc = 'high': expected `float"),
        ("[[guards]]\ndataset = 'rqa@v1'", "guards.dataset = 'rqa@v1': expected a name without version"),
        ("[[guards]]\ndataset = 'rqa'\n[[guards]]\ndataset = 'rqa'", "guards = .*: name a data set once"),
        ("[[guards]]\ndataset = 'rqa'\nmargin = -1", "guards.margin = -1"),
        ("level = 1.0", "level = 1.0: "),
        ("min_documents = 0", "min_documents = 0: "),
        ("split = 'test'", "split = 'test': models are trained on train, and scores on test are reported"),
        ("split = 'train'", "split = 'train': models are trained on train"),
        ("approvers = ['Ann', ' ']", "approvers = .*: expected NAME or NAME:KEY each"),
        ("approvers = [':9f3c']", "approvers = "),
        ("auc 70", "expected TOML: .*line 1"),
    ],
)
def test_a_mistake_is_told_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_policy(path)
    assert str(caught.value).startswith(f"--policy {path}: ")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        read_policy(tmp_path / "absent.toml")
