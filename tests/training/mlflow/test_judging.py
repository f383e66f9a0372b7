"""The measures of a model over a real lake and registry; of pairs, which have no AUC, promotion and comparison, too."""

import json
import re
from pathlib import Path

import lakes
import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest
from registries import Register

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import NotFoundError, UsageError
from training.data.lake import Columns, read_split
from training.evaluation.evaluate import EvaluateConfig
from training.evaluation.judge import judge_model
from training.evaluation.models import evaluate_model
from training.linking.links import LinkedDocument, LinkOptions
from training.metrics.links import score_documents
from training.metrics.spread import regress
from training.mlflow.champions import record_of
from training.mlflow.loading import load
from training.mlflow.policy import Guard, Measure, Minimum, Policy
from training.mlflow.promotion import promote
from training.mlflow.registry import find_version
from training.model import LinkModel
from training.promotions.record import JUDGED
from training.report.sections import comparison_lines
from training.workflows.evaluate import EvaluateSummary, run_evaluate, run_report
from training.workflows.link import run_link
from training.workflows.studies import run_compare


def evaluated(client: mlflow.MlflowClient, lake: Lake, model: str = "models:/linker/1") -> EvaluateSummary:
    return run_evaluate(model=model, dataset="synthetic", lake=lake.root.uri, tracking=client.tracking_uri, say=print)


def test_the_table_is_kept_with_the_run_and_beside_the_report(
    client: mlflow.MlflowClient,
    registered: str,
    registry_lake: Lake,
    tmp_path: Path,
) -> None:
    summary = evaluated(client, registry_lake)
    run_id = str(find_version(client, "linker", "1").run_id)
    kept = client.download_artifacts(run_id, "evaluation/synthetic-v1-test/evaluation.parquet", str(tmp_path))
    page = run_report(summary, lake=registry_lake.root.uri, directory=tmp_path, tracking=client.tracking_uri)
    for path in (Path(kept), page.with_name("evaluation.parquet")):
        assert lakes.read_rows(path) == summary.report.rows
    rows = {(row.measure, row.metric, row.group): row for row in summary.report.rows}
    auc = rows["links", "auc", ""]
    assert (auc.value, auc.n) == (summary.evaluation.mean["auc"].value, len(summary.evaluation.scores))
    assert (summary.report.model, summary.report.model_version) == ("linker", "1")
    documents = [row.value for row in summary.report.rows if (row.measure, row.metric) == ("document", "auc")]
    assert np.mean(np.array(documents)) == pytest.approx(auc.value)
    metrics = client.get_run(run_id).data.metrics
    recall = next(row.value for row in summary.rows if (row.measure, row.metric) == ("retrieval", "recall_at_1"))
    assert [value for name, value in metrics.items() if "text_to_image" in name and "recall_at_1_" in name] == [recall]
    text = page.read_text(encoding="utf-8")
    for title in ("Retrieval", "What makes a document hard", "How sure a link is"):
        assert title in text
    assert "http:" not in text and "https:" not in text
    json.dumps(summary.to_json(), allow_nan=False)


def test_measures_equal_those_of_the_matrices(registry_lake: Lake, trained: Path, tmp_path: Path) -> None:
    model = LinkModel.load(trained)
    judged = judge_model(model, registry_lake, "synthetic")
    manifest, folder = read_manifest(registry_lake, "synthetic")
    documents = read_split(manifest, folder, "test", Columns(images="auto", sentences="text-test", links=True))
    assert judged.evaluation.mean == score_documents(judged.evaluation.matrices, documents.links).means()
    rows = {(row.measure, row.metric, row.group): row for row in judged.rows}
    assert len(rows) == len(judged.rows)
    linked = sum(len({sentence for sentence, _ in known.tolist()}) for known in documents.links if known is not None)
    forward = next(row for row in judged.rows if row.metric == "median_rank" and "text to image" in row.group)
    assert forward.n == linked and 0 < (forward.value or 0) < int(forward.group.split()[-1]) / 4
    assert {row.group.partition("=")[0] for row in judged.rows if "=" in row.group} == {"sentences"}  # one language
    assert rows["analysis", "p", "spread"].note == "images: image-test; sentences: text-test"
    assert rows["relations", "absent", ""].note == "the model predicts no relations"
    words = {f"thing{number}": np.eye(40)[number] for number in range(40)}
    vectors = tmp_path / "words.txt"
    vectors.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in words.items()))
    config = EvaluateConfig(
        sample_pairs=20,
        samples=3,
        distinct_images=False,
        spread_words=True,
        word_vectors=str(vectors),
        word_dimensions=40,
    )
    again = judge_model(model, registry_lake, "synthetic", config=config)
    assert any(row.group == "text to image, 3 samples of 20" for row in again.rows)
    scores, counts = again.evaluation.scores, np.array([rows.stop - rows.start for rows in documents.sentences])
    spreads = 1 - 1 / counts[scores.documents]  # each sentence names a thing of its own: orthogonal unit vectors
    expected = regress("text spread", spreads[:, None], scores.table[:, 0])
    found = [row for row in again.rows if (row.measure, row.group) == ("analysis", "text spread")]
    assert [row.value for row in found] == pytest.approx([row.value for row in expected])
    assert found[0].note == f"images: image-test; sentences: mean of {vectors}"


def test_links_at_a_wanted_precision(
    client: mlflow.MlflowClient, registered: str, registry_lake: Lake, tmp_path: Path
) -> None:
    loaded = load("models:/linker/1", client)
    assert loaded.calibration is None
    version = read_manifest(registry_lake, "synthetic")
    columns = Columns(images="auto", sentences="text-test")
    documents = list(lakes.given_documents(read_split(*version, Split.TEST, columns)))
    with pytest.raises(UsageError, match=r"models:/linker/1 has no calibration; `multilink evaluate` makes one"):
        precise = LinkOptions(precision=0.9)
        run_link(loaded=loaded, documents=documents, output=tmp_path / "x.parquet", options=precise, say=print)
    evaluated(client, registry_lake)
    calibration = load("models:/linker/1", client).calibration
    assert calibration is not None and calibration.dataset == "synthetic@v1" and calibration.split == "val"
    wanted = calibration.points[-1].precision
    found = {}
    for name, precision in (("all", None), ("some", wanted)):
        path = tmp_path / f"{name}.parquet"
        options = LinkOptions(calibration=calibration, precision=precision)
        run_link(loaded=loaded, documents=documents, output=path, options=options, say=print)
        found[name] = pq.read_table(path).to_pylist()
    threshold = calibration.threshold(wanted)
    assert found["some"] == [row for row in found["all"] if row["similarity"] >= threshold]
    assert found["some"]
    linker = loaded.linker(LinkOptions(calibration=calibration))
    matrices = [each.similarities for each in linker.link_given(documents) if isinstance(each, LinkedDocument)]
    places = {document.id: matrix for document, matrix in zip(documents, matrices, strict=True)}
    for row in found["all"]:
        place = (np.array([row["sentence"]]), np.array([row["image"]]))
        assert row["probability"] == pytest.approx(calibration.of_links(places[row["document"]], *place)[0], abs=1e-5)
    own = LinkOptions().calibrated(calibration)
    assert own == LinkOptions(calibration=calibration, is_of_model=True)
    for found_link in next(iter(loaded.linker(own).link_given(documents))).links:  # of documents of a user's own
        assert found_link.probability is None and found_link.word
    assert LinkOptions(calibration=calibration).calibrated(loaded.calibration).calibration == calibration


def test_without_validation_links_the_reason_is_said(trained: Path, tmp_path: Path) -> None:
    test, val = (lakes.make_documents(split, 8, lakes.World()) for split in (Split.TEST, Split.VAL))
    model = LinkModel.load(trained)
    for name, splits, reason in (
        ("none", {Split.TEST: test}, "synthetic@v1 has no validation split to calibrate on"),
        (
            "unknown",
            {Split.TEST: test, Split.VAL: lakes.without_links(val)},
            "synthetic@v1: no validation document has known links to calibrate on",
        ),
    ):
        judged = judge_model(model, lakes.write_lake(tmp_path / name, splits), "synthetic")
        absent = {row.measure: row.note for row in judged.rows if row.metric == "absent"}
        assert judged.calibration is None and absent["calibration"] == reason


def test_mistakes_of_evaluate(client: mlflow.MlflowClient, registry_lake: Lake, trained: Path) -> None:
    for model, dataset, split, message in (
        ("models:/linker/1", "synthetic", "test", "no model 'linker'"),
        (str(trained), "other", "test", "no data set 'other'"),
        (str(trained), "synthetic", "dev", "no split 'dev'"),
    ):
        with pytest.raises(NotFoundError, match=message):
            run_evaluate(
                model=model,
                dataset=dataset,
                split=split,
                lake=registry_lake.root.uri,
                tracking=client.tracking_uri,
                say=print,
            )


def test_compare_scores_runs_and_folders_on_the_same_documents(
    client: mlflow.MlflowClient,
    registered: str,
    registry_lake: Lake,
    untrained: Path,
) -> None:
    summary = run_compare(
        models=["models:/linker/1", str(untrained), str(untrained)],
        dataset=None,
        lake=registry_lake.root.uri,
        tracking=client.tracking_uri,
        say=print,
    )
    names = [result.name for result in summary.models]
    assert names == ["linker 1", str(untrained)] and summary.dataset == "synthetic@v1"
    assert summary.models[1].differences["auc"].high < 0
    json.dumps(summary.to_json(), allow_nan=False)


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
    # (1 + 1/2 + ... + 1/60) / 60
    assert re.match("beats random: reciprocal rank .* is above 7.8 with", first.decision.reasons[0])
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


def test_pairs_are_judged_by_retrieval(client: mlflow.MlflowClient, pairs: Lake, trained: Path, tmp_path: Path) -> None:
    where = {"lake": pairs.root.uri, "tracking": client.tracking_uri}
    summary = run_evaluate(model=str(trained), dataset="synthetic", **where, say=print)
    assert not summary.evaluation.scores and summary.evaluation.scores.left_out == {"every pair linked": 60}
    with pytest.raises(UsageError, match="60 every pair linked"):
        _ = summary.evaluation.mean
    groups = {row.group for row in summary.rows if row.measure == "retrieval"}
    assert groups == {"text to image, whole pool of 60", "image to text, whole pool of 60"}
    absent = {row.measure: row.note for row in summary.rows if row.metric == "absent"}
    assert "unlinked pair" in absent["calibration"]
    lines = summary.lines()
    assert lines[0].split()[1:4] == ["R@1", "R@5", "R@10"] and lines[2].split()[0] == "random"
    assert "60 documents; left out: none" in lines
    assert any(line.startswith("text to image, whole pool of 60  ") for line in lines)
    assert "Median rank" in run_report(summary, **where, directory=tmp_path).read_text(encoding="utf-8")
    assert json.loads(json.dumps(summary.to_json(), allow_nan=False))["reciprocal_rank"]["mean"] > 50


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
    assert (
        trained_one.means == evaluate_model(LinkModel.load(trained), pairs, "synthetic", with_pairs=True).pairs.means()
    )
    head, first, *others = comparison_lines(summary)
    assert "R@10" in head and f"{trained_one.means['recall_at_5'].value:.1f}" in first
    assert "rank correlation of per-document reciprocal rank:" in others
    json.dumps(summary.to_json(), allow_nan=False)
