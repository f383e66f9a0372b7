"""Promotion and comparison where documents are a text and an image each: by retrieval, with no AUC anywhere."""

import json
from pathlib import Path

import lakes
import mlflow
import pytest
from registries import Register

from schemas.errors import UsageError
from schemas.lake import Lake
from training.mlflow.champions import record_of
from training.mlflow.policy import Guard, Measure, Minimum, Policy
from training.mlflow.promotion import promote
from training.promotions.record import JUDGED
from training.report.studies import comparison_lines
from training.workflows.evaluate import run_evaluate
from training.workflows.studies import run_compare


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    world = lakes.World(sentences=(1, 1), images=(1, 1))
    return lakes.write_lake(tmp_path_factory.mktemp("pairs") / "lake", lakes.splits(world, val=60, test=60))


def test_pairs_are_promoted_by_the_reciprocal_rank(
    client: mlflow.MlflowClient, register_model: Register, pairs: Lake, trained: Path, untrained: Path
) -> None:
    for folder in (trained, untrained):
        register_model(folder)
    first = promote(client, "linker", "1", lake=pairs, say=print)
    assert first.decision.is_promoted
    assert first.decision.measure is Measure.RECIPROCAL_RANK and first.decision.documents == 60
    assert first.decision.reasons[0].startswith("beats random: reciprocal rank ")
    assert "is above 7.8 with" in first.decision.reasons[0]  # (1 + 1/2 + ... + 1/60) / 60
    second = promote(client, "linker", "2", lake=pairs, say=print)
    assert not second.decision.is_promoted
    stored = record_of(client, "linker").about("2", JUDGED)[-1].decision
    assert stored["measure"] == "reciprocal_rank" and stored["policy"]["measure"] == "auto"
    assert "worse than the champion: reciprocal rank differs by -" in stored["reasons"][1]


def test_a_policy_names_the_measure_its_minima_and_guards(
    client: mlflow.MlflowClient,
    register_model: Register,
    registry_lake: Lake,
    pairs: Lake,
    trained: Path,
    untrained: Path,
) -> None:
    for folder in (untrained, trained, untrained):
        register_model(folder)
    policy = Policy(measure=Measure.RECIPROCAL_RANK, minimum=Minimum(reciprocal_rank=100))
    refused = promote(client, "linker", "2", lake=pairs, policy=policy, say=print)
    assert refused.decision.measure is Measure.RECIPROCAL_RANK
    assert {check.name: check.is_passed for check in refused.decision.checks} == {
        "random": True,
        "champion": True,
        "documents": True,
        "minimum reciprocal_rank": False,
        "latest": True,
    }
    with pytest.raises(
        UsageError, match=r"policy: minimum\.auc: the documents of .* have no AUC; they are scored by reciprocal rank"
    ):
        promote(client, "linker", "2", lake=pairs, policy=Policy(minimum=Minimum(auc=1)), say=print)
    with pytest.raises(UsageError, match="no document has an AUC; set measure = "):
        promote(client, "linker", "2", lake=pairs, policy=Policy(measure=Measure.AUC), say=print)

    assert promote(client, "linker", "2", lake=pairs, say=print).decision.is_promoted
    guarded = Policy(
        measure=Measure.AUC, guards=(Guard(dataset="synthetic", margin=1.0, measure=Measure.RECIPROCAL_RANK),)
    )
    worse = promote(client, "linker", "3", lake=registry_lake, policy=guarded, say=print)
    assert worse.decision.measure is Measure.AUC
    guard = next(check for check in worse.decision.checks if check.name == "guard synthetic")
    assert not guard.is_passed and "reciprocal rank differs by -" in guard.reason


def test_pairs_are_compared_by_retrieval(
    client: mlflow.MlflowClient, pairs: Lake, trained: Path, untrained: Path
) -> None:
    summary = run_compare(
        models=[str(trained), str(untrained)],
        dataset="synthetic",
        lake=pairs.root.uri,
        tracking=client.tracking_uri,
        say=print,
    )
    trained_one, other = summary.models
    assert other.differences.keys() == {"recall_at_1", "recall_at_5", "recall_at_10", "reciprocal_rank"}
    assert other.differences["reciprocal_rank"].high < 0
    evaluated = run_evaluate(
        model=str(trained), dataset="synthetic", lake=pairs.root.uri, tracking=client.tracking_uri, say=print
    )
    assert evaluated.evaluation.pairs is not None and evaluated.evaluation.pairs.means() == trained_one.means
    assert evaluated.to_json()["reciprocal_rank"]["mean"] == trained_one.means["reciprocal_rank"].value
    lines = evaluated.lines()
    assert lines[0].split()[1:4] == ["R@1", "R@5", "R@10"] and lines[2].split()[0] == "random"
    assert "60 documents; left out: none" in lines
    head, first, *others = comparison_lines(summary)
    assert "R@10" in head and f"{trained_one.means['recall_at_5'].value:.1f}" in first
    assert "rank correlation of per-document reciprocal rank:" in others
    json.dumps(summary.to_json(), allow_nan=False)
