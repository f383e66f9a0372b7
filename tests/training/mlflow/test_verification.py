"""A champion is proved on any machine: one flipped byte anywhere is refused, with its place."""

import json
import re
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import mlflow
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, Key
from training.mlflow.history import approve, championships
from training.mlflow.provenance import keys_of
from typer.testing import CliRunner

from orchestration.cli import app
from schemas.documents import Split
from schemas.errors import ConfigError, GateError, IntegrityError, MultilinkError, NotFoundError, UsageError
from schemas.lake import Lake
from schemas.manifest import version_name
from schemas.versions import canonical_json
from training.config import LoopConfig, Select, TrainConfig
from training.data.loading import load_training_data
from training.evaluation.models import evaluate_model
from training.loop.context import Context
from training.loop.trainer import train
from training.metrics.links import LinkScore
from training.mlflow import evidence, judging, verification
from training.mlflow.champions import statements
from training.mlflow.loading import open_model
from training.mlflow.policy import Forget, Guard, Policy
from training.mlflow.promotion import promote, rollback
from training.mlflow.registering import register
from training.mlflow.registry import APPROVED_TAG, DECISION_TAG, MODEL_DIGEST_TAG
from training.mlflow.runs import connect, experiment_id
from training.mlflow.taints import TAINTED, taint
from training.mlflow.verification import verify_champion
from training.promotions.keys import make_key, public_path, trusted_keys
from training.towers.image.linear import LinearSettings
from training.towers.text.sentence import SentenceSettings

VERSION = version_name({}, {}, {"documents": 1, "images": 1})  # of a lake that a test writes
CONFIG = TrainConfig(
    recipe="tiny",
    dimensions=16,
    text=SentenceSettings(dropout=0.0),
    image=LinearSettings(dropout=0.0, standardise=True),
    training=LoopConfig(epochs=4, learning_rate=1e-2, select=Select.LAST),
)
POLICY = Policy(approval=True, approvers=("Ann",), guards=(Guard(dataset="synthetic", margin=5.0),))


@dataclass(frozen=True)
class Workspace:
    """A registry whose second version was promoted after the first, with Ann's approval, and its lake."""

    folder: Path
    client: mlflow.MlflowClient
    key: Path
    model: Path

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def chain(self) -> Path:
        return self.lake / "promotions" / "linker"

    @property
    def keys(self) -> list[Key]:
        return [*trusted_keys([public_path(self.key)])]

    def verify(self, version: str = "champion", **options: Any) -> tuple[str, ...]:
        found = verify_champion(self.client, "linker", version, keys=self.keys, say=lambda _: None, **options)
        return found.findings

    def add_version(self, model: Path) -> str:
        run = self.client.create_run(experiment_id(self.client, "multilink-synthetic"))
        tags = {"dataset": "synthetic", "dataset_version": VERSION, "lake": str(self.lake), "recipe": "tiny"}
        return register(self.client, model, name="linker", run_id=run.info.run_id, tags=tags).version


@dataclass(frozen=True)
class Learned:
    """A lake and a model that was trained on it."""

    lake: Path
    model: Path


@pytest.fixture(scope="module")
def learned(lakes: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    folder = tmp_path_factory.mktemp("learned")
    counts = zip(Split, (60, 30, 30), strict=True)
    splits = {split: lakes.make_documents(split, count, lakes.World()) for split, count in counts}
    lake = lakes.write_lake(str(folder / "lake"), splits, version=VERSION)
    data = load_training_data(lake, "synthetic", CONFIG)
    return Learned(folder / "lake", train(CONFIG, data, Context(), run_directory=folder / "run").model)


def _workspace(folder: Path, template: Path, learned: Learned) -> Workspace:
    folder.mkdir()
    shutil.copy(template, folder / "mlflow.db")
    shutil.copytree(learned.lake, folder / "lake")
    key = folder / "key.pem"
    make_key(key)
    return Workspace(folder, connect(f"sqlite:///{folder}/mlflow.db"), key, learned.model)


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory, template: Path, learned: Learned) -> Iterator[Workspace]:
    made = _workspace(tmp_path_factory.mktemp("verified") / "workspace", template, learned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MULTILINK_KEY", str(made.key))
        for _ in range(2):
            version = made.add_version(learned.model)
            approve(made.client, "linker", version, by="Ann")
            assert promote(made.client, "linker", version, policy=POLICY, say=print).decision.is_promoted
        yield made


@contextmanager
def _flipped(path: Path, at: int = -1) -> Iterator[None]:
    data = path.read_bytes()
    changed = bytearray(data)
    changed[at] ^= 1
    path.write_bytes(bytes(changed))
    try:
        yield
    finally:
        path.write_bytes(data)


@contextmanager
def _rewritten(
    path: Path, change: Callable[[dict[str, Any]], None], signer: CryptoSigner | None = None
) -> Iterator[None]:
    """Let a statement say something else: with its old signature, or another key's."""
    data = path.read_bytes()
    envelope = Envelope.from_dict(json.loads(data))
    statement = json.loads(envelope.payload)
    change(statement["predicate"])
    payload = canonical_json(statement).encode()
    changed = json.loads(data) | {"payload": b64encode(payload).decode()}
    if signer is not None:
        signed = Envelope(payload, envelope.payload_type, {})
        signed.sign(signer)
        changed = signed.to_dict()
    path.write_text(canonical_json(changed) + "\n")
    try:
        yield
    finally:
        path.write_bytes(data)


def test_a_champion_is_as_it_was_promoted(promoted: Workspace) -> None:
    findings = promoted.verify(is_deep=True)
    key = promoted.keys[0].keyid
    assert findings[0] == f"4 statements follow one another; {promoted.chain}/000004.json is signed by {key}"
    assert f"files of synthetic@{VERSION} are those of its manifest" in findings[2]
    assert findings[-1] == "its 30 documents are scored as they were, to the last bit"
    assert promoted.verify("1", is_deep=True)[-1] == findings[-1]


def test_a_statement_says_what_it_rests_on(promoted: Workspace) -> None:
    payload = Envelope.from_dict(json.loads((promoted.chain / "000004.json").read_bytes())).payload
    statement = json.loads(payload)
    says, version = statement["predicate"], promoted.client.get_model_version("linker", "2")
    assert statement["subject"] == [{"name": "models:/linker/2", "digest": {"sha256": version.tags[MODEL_DIGEST_TAG]}}]
    assert says["decision"] == json.loads(version.tags[DECISION_TAG])
    assert says["decision"]["policy"]["guards"][0]["dataset"] == "synthetic"
    assert re.fullmatch("[0-9a-f]{64}", says["decision"]["scores"])
    assert [(each["role"], each["dataset"], each["split"]) for each in says["judged_on"]] == [
        ("target", f"synthetic@{VERSION}", "val"),
        ("guard", f"synthetic@{VERSION}", "val"),
    ]
    assert says["trained_on"]["sha256"] == says["judged_on"][0]["sha256"]
    assert says["code"]["sha256"] and says["libraries"]["torch"] and says["processor"]["device"] in ("cpu", "cuda")


def test_one_flipped_byte_is_refused_with_its_place(promoted: Workspace) -> None:
    shard = next((promoted.lake / "datasets" / "synthetic" / VERSION).rglob("*.parquet"))
    manifest = promoted.lake / "datasets" / "synthetic" / VERSION / "manifest.json"
    weights = sorted((promoted.folder / "mlartifacts").rglob("weights.pt"))
    # A digit of a count: the manifest is still one.
    at = manifest.read_bytes().index(b'"documents": ') + len('"documents": ')
    for path, place, error in (
        (shard, -1, shard.name),
        (manifest, at, "manifest.json: expected the manifest that was promoted on"),
    ):
        with _flipped(path, place), pytest.raises(IntegrityError, match=error):
            promoted.verify()
    for number, path in enumerate(weights):
        with _flipped(path):
            found = [version for version in ("1", "2") if _is_refused(promoted, version, "weights.pt")]
            assert len(found) == 1, number
            with pytest.raises(IntegrityError, match=r"weights\.pt"):
                promoted.verify("2", is_deep=True)  # which was compared with the other one
    for name in ("000001.json", "000003.json", "000004.json"):
        for place in (20, 2000, -3):
            with (
                _flipped(promoted.chain / name, min(place, 900)),
                pytest.raises(IntegrityError, match=r"00000\d\.json"),
            ):
                promoted.verify()
    with _flipped(public_path(promoted.key), 40), pytest.raises((ConfigError, IntegrityError)):
        promoted.verify()
    assert promoted.verify()


def _is_refused(promoted: Workspace, version: str, why: str) -> bool:
    try:
        promoted.verify(version)
    except IntegrityError as problem:
        assert why in str(problem)
        return True
    return False


@pytest.mark.parametrize("is_signed_by_another", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda says: says["decision"]["policy"].update(margin=50.0),
        lambda says: says["decision"].update(scores="0" * 64),
        lambda says: says["judged_on"].clear(),
        lambda says: says["decision"].update(approved_by="Bo"),
        lambda says: says.update(champions=["1"]),
    ],
    ids=["policy", "scores", "data", "approval", "champion"],
)
def test_a_statement_that_says_something_else_is_refused(
    promoted: Workspace, change: Callable[[dict[str, Any]], None], is_signed_by_another: bool
) -> None:
    other = CryptoSigner.generate_ed25519() if is_signed_by_another else None
    path = promoted.chain / "000004.json"
    with _rewritten(path, change, other), pytest.raises(IntegrityError, match=r"000004\.json|alias champion"):
        promoted.verify()


def test_the_registry_must_say_the_same(promoted: Workspace) -> None:
    client, tags = promoted.client, dict(promoted.client.get_model_version("linker", "2").tags)
    client.set_registered_model_alias("linker", "champion", "1")
    with pytest.raises(IntegrityError, match=r"alias champion of linker is version 1; .*000004\.json says version 2"):
        promoted.verify()
    client.set_registered_model_alias("linker", "champion", "2")
    decision = json.loads(tags[DECISION_TAG])
    decision["policy"]["margin"] = 9.0
    for name, value, error in (
        (MODEL_DIGEST_TAG, "0" * 64, "by the registry's tag it is 000"),
        (DECISION_TAG, json.dumps(decision), r"tag promotion is not the decision of .*000004\.json: policy"),
    ):
        client.set_model_version_tag("linker", "2", name, value)
        with pytest.raises(IntegrityError, match=error):
            promoted.verify()
        client.set_model_version_tag("linker", "2", name, tags[name])
    assert promoted.verify()


def test_scores_that_come_out_otherwise_are_refused(promoted: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = evaluate_model

    def shifted(by: float) -> Callable[..., Any]:
        def scored(*arguments: Any, **named: Any) -> Any:
            found = evaluate(*arguments, **named)
            lower = tuple(LinkScore(score[0] - by, *score[1:]) for score in found.scores.scores)
            return replace(found, scores=replace(found.scores, scores=lower))

        return scored

    monkeypatch.setattr(judging, "evaluate_model", shifted(0.01))
    with pytest.raises(IntegrityError, match=r"000004\.json: its scores have digest .*same kind of processor"):
        promoted.verify(is_deep=True)
    elsewhere = evidence.processor() | {"name": "another"}
    monkeypatch.setattr(verification, "processor", lambda: elsewhere)
    assert promoted.verify(is_deep=True)[-1] == (
        "with another processor, each condition comes out as it did, means within 0.1 points"
    )
    monkeypatch.setattr(judging, "evaluate_model", shifted(0.2))
    with pytest.raises(IntegrityError, match=r"000004\.json: it says: .*; judged again: "):
        promoted.verify(is_deep=True)
    monkeypatch.setattr(judging, "evaluate_model", evaluate)
    assert promoted.verify(is_deep=True)[-1].endswith("; the scores are the same to the last bit")


def test_a_lake_that_was_moved_is_named(promoted: Workspace, tmp_path: Path) -> None:
    shutil.copytree(promoted.lake, tmp_path / "lake")
    assert promoted.verify(lake=Lake.at(str(tmp_path / "lake")), is_deep=True)[0].split()[5].startswith(str(tmp_path))
    with pytest.raises(IntegrityError, match="expected at least 4 statements, found 0"):
        promoted.verify(lake=Lake.at(str(tmp_path / "other")))


def test_which_keys_are_trusted_is_asked(promoted: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.keyid for each in keys_of()] == [promoted.keys[0].keyid]  # one's own
    monkeypatch.setenv("MULTILINK_KEY", str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match="no key is trusted: name public keys with --trust"):
        keys_of()
    make_key(tmp_path / "other.pem")
    with pytest.raises(IntegrityError, match=f"found one by the key {promoted.keys[0].keyid[:12]}"):
        verify_champion(promoted.client, "linker", "champion", keys=keys_of([tmp_path / "other.pub.pem"]), say=print)


def test_the_command_line_verifies_and_writes_the_bill_of_materials(promoted: Workspace, tmp_path: Path) -> None:
    store, trust = ["--tracking-uri", promoted.client.tracking_uri], ["--trust", str(public_path(promoted.key))]
    for address in ("linker", "linker@champion", "models:/linker/2"):
        done = CliRunner().invoke(app, ["verify", address, *trust, *store], catch_exceptions=False)
        assert done.exit_code == 0 and "models:/linker/2 is as it was promoted" in done.output.splitlines()
    bom = tmp_path / "bom.json"
    done = CliRunner().invoke(app, ["promotions", "linker", "--bom", str(bom), *trust, *store], catch_exceptions=False)
    assert promoted.keys[0].keyid[:12] in done.output
    text = bom.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    read = json.loads(text)
    model, version = read["metadata"]["component"], promoted.client.get_model_version("linker", "2")
    assert (model["name"], model["version"], model["type"]) == ("linker", "2", "machine-learning-model")
    assert model["hashes"] == [{"alg": "SHA-256", "content": version.tags[MODEL_DIGEST_TAG]}]
    metrics = {each["type"]: each for each in model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]}
    assert float(metrics["random"]["confidenceInterval"]["lowerBound"]) > 50
    assert {each["name"] for each in read["components"]} >= {"synthetic", "torch", "multilink-pipeline"}
    CliRunner().invoke(app, ["promotions", "linker", "--bom", str(bom), *trust, *store], catch_exceptions=False)
    assert bom.read_text() == text


@pytest.fixture
def workspace(tmp_path: Path, template: Path, learned: Learned, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with two versions that nobody has judged; nothing is signed."""
    made = _workspace(tmp_path / "own", template, learned)
    monkeypatch.delenv("MULTILINK_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    for _ in range(2):
        made.add_version(learned.model)
    return made


def _opens(workspace: Workspace, address: str = "linker") -> None:
    open_model(address, workspace.client.tracking_uri)


def test_where_champions_must_verify_others_are_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    client = workspace.client
    promote(client, "linker", "1", say=print)
    _opens(workspace)
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    monkeypatch.setenv("MULTILINK_TRUST", str(public_path(workspace.key)))
    with pytest.raises(IntegrityError, match=r"000001\.json: expected a trusted key's signature, found none"):
        _opens(workspace)
    with pytest.raises(IntegrityError, match="models:/linker/2: no statement says that it was promoted"):
        _opens(workspace, "models:/linker/2")
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    promote(client, "linker", "2", say=print)
    _opens(workspace)
    rollback(client, "linker")  # the statement on it is signed; the first one, which it rests on, is not
    with pytest.raises(IntegrityError, match=r"000001\.json: expected a trusted key's signature"):
        _opens(workspace)
    promote(client, "linker", "2", say=print)
    rollback(client, "linker", champion="2")
    promote(client, "linker", "2", say=print)
    _opens(workspace)
    assert workspace.verify(is_deep=True)[-1].endswith("to the last bit")
    monkeypatch.setenv("MULTILINK_VERIFY", "perhaps")
    with pytest.raises(ConfigError, match="MULTILINK_VERIFY = 'perhaps': expected true or false"):
        _opens(workspace)


def test_a_policy_asks_for_verified_champions(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(verify=True)
    promote(workspace.client, "linker", "1", policy=policy, say=print)
    with pytest.raises(UsageError, match="no key is trusted"):
        _opens(workspace)
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    with pytest.raises(IntegrityError, match="signature, found none"):
        _opens(workspace)
    promote(workspace.client, "linker", "2", policy=policy, say=print)
    _opens(workspace)


def test_an_approval_that_nobody_stated_is_none(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    workspace.client.set_model_version_tag("linker", "1", APPROVED_TAG, "Ann")  # by hand, in the registry
    assert promote(workspace.client, "linker", "1", policy=Policy(approval=True), say=print).decision.is_promoted
    with pytest.raises(IntegrityError, match=r"000001\.json: approved by Ann, of whom there is no statement before it"):
        workspace.verify()


def test_a_rolled_back_champion_verifies(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    for version in ("1", "2"):
        promote(workspace.client, "linker", version, say=print)
    rollback(workspace.client, "linker")
    findings = workspace.verify(is_deep=True)
    assert "000003.json is signed by" in findings[0] and findings[-1].endswith("to the last bit")
    shutil.rmtree(workspace.lake / "datasets" / "synthetic")
    with pytest.raises(MultilinkError, match="synthetic"):
        workspace.verify()
    with pytest.raises(NotFoundError, match="no version '9'"):
        workspace.verify("9")


def test_a_tainted_champion_is_used_as_long_as_its_policy_says(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, lake = workspace.client, Lake.at(str(workspace.lake))
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    promote(client, "linker", "1", policy=Policy(forget=Forget(within_days=30), verify=True), say=print)
    assert [each.version for each in taint(client, lake, "synthetic", VERSION, documents=2, images=3)] == ["2", "1"]
    _opens(workspace)  # from now on for 30 days
    why = f"trained on synthetic@{VERSION}, out of which 2 documents and 3 images were taken on "
    assert championships(client, "linker")[0].tainted.startswith(why)
    findings = workspace.verify(is_deep=True)
    assert findings[-1] == "its scores cannot be compared" and "its files are not compared" in findings[-2]

    tag = json.loads(client.get_model_version("linker", "1").tags[TAINTED])
    for days, is_refused in ((29, False), (31, True)):
        at = datetime.now(UTC) - timedelta(days=days)
        client.set_model_version_tag("linker", "1", TAINTED, json.dumps(tag | {"at": at.isoformat()}))
        with pytest.raises(GateError, match=f"models:/linker/1 was {why}") if is_refused else nullcontext():
            _opens(workspace)
    assert "promote another" in _shown(["link", "--dataset", "synthetic", "--model", "linker"], workspace)

    workspace.add_version(workspace.model)  # on data without it, as a rebuild gives
    promote(client, "linker", "3", say=print)
    statement = statements(client, "linker")[-1].predicate
    assert statement["replaces"]["version"] == "1" and statement["replaces"]["tainted"].startswith(why)
    _opens(workspace)


def _shown(command: list[str], workspace: Workspace) -> str:
    where = ["--lake", str(workspace.lake), "--tracking-uri", workspace.client.tracking_uri]
    done = CliRunner().invoke(app, [*command, *where, "--output", str(workspace.folder / "links")])
    assert done.exit_code != 0
    return str(done.exception)
