"""A champion is proved on any machine: one flipped byte anywhere is refused, with its place."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lakes
import mlflow
import pytest
from mlflow.store.artifact.models_artifact_repo import ModelsArtifactRepository
from registries import Registry, change_champion
from securesystemslib.dsse import Envelope
from securesystemslib.signer import Key
from typer.testing import CliRunner

from newsroom.archive.build import build_index
from newsroom.search.archive import Archive
from orchestration.cli import app
from schemas.documents import Split
from schemas.lake import Folder, Lake
from schemas.manifest import read_manifest, version_name
from schemas.messages import ConfigError, GateError, IntegrityError, NotFoundError, UsageError
from training.data.lake import Columns, read_split
from training.evaluation.models import evaluate_model
from training.mlflow import judging
from training.mlflow.champions import adopt, align, append, record_of, relocate_lake, taint
from training.mlflow.gate import Decision
from training.mlflow.judging import verify_champion
from training.mlflow.loading import load_logged, open_model, write_model
from training.mlflow.policy import Guard, Minimum, Policy
from training.mlflow.promotion import approve, promote, rollback
from training.mlflow.registering import register
from training.mlflow.registry import find_version
from training.mlflow.runs import experiment_id
from training.mlflow.serving import run_serve
from training.model import SUMS, LinkModel, seal
from training.promotions import proof
from training.promotions.keys import accepts_index, make_key, public_path, sign_index, trusted_keys
from training.promotions.proof import ADDRESS_FILE, championships, keys_of
from training.promotions.record import MODEL_DIGEST_TAG, TAINTED
from training.workflows.evaluate import run_evaluate

VERSION = version_name({}, {}, {"documents": 1, "images": 1})  # of a lake that a test writes
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

    def verify(self, version: str = "champion", **options: Any) -> list[str]:
        return verify_champion(self.client, "linker", version, keys=self.keys, say=lambda _: None, **options)[1]

    def promote(self, *versions: str, **options: Any) -> Decision:
        """Promote versions, one after the other; return the last decision."""
        return [promote(self.client, "linker", each, say=print, **options).decision for each in versions][-1]

    def add_version(self, model: Path) -> str:
        run = self.client.create_run(experiment_id(self.client, "multilink-synthetic"))
        tags = {"dataset": "synthetic", "dataset_version": VERSION, "lake": str(self.lake), "recipe": "tiny"}
        return register(self.client, model, name="linker", run_id=run.info.run_id, tags=tags).version


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake and a model that was trained on it."""
    folder = tmp_path_factory.mktemp("learned")
    lake = lakes.write_lake(folder / "lake", lakes.splits(train=60, val=30, test=30), version=VERSION)
    lakes.learn(lakes.TINY, lake, folder)
    return folder


@pytest.fixture(scope="module")
def stage(template: Path, tmp_path_factory: pytest.TempPathFactory, learned: Path) -> Iterator[Registry]:
    """A store beside a lake and a key."""
    folder = tmp_path_factory.mktemp("verified")
    shutil.copytree(learned / "lake", folder / "lake")
    make_key(folder / "key.pem")
    registry = Registry(folder, tmp_path_factory.mktemp("kept"), template)
    yield registry
    registry.database.close()


def _workspace(stage: Registry, learned: Path) -> Workspace:
    """Return a workspace with two versions that nobody has judged."""
    made = Workspace(stage.folder, stage.reset(), stage.folder / "key.pem", learned / "model")
    for _ in range(2):
        stage.after("version", lambda: made.add_version(learned / "model"))
    return made


@pytest.fixture
def promoted(stage: Registry, learned: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    made = _workspace(stage, learned)
    monkeypatch.setenv("MULTILINK_KEY", str(made.key))

    def promote_both() -> None:
        for version in ("1", "2"):
            approve(made.client, "linker", version, by="Ann")
            assert promote(made.client, "linker", version, policy=POLICY, say=print).decision.is_promoted

    stage.after("both are promoted", promote_both)
    return made


@contextmanager
def _flipped(path: Path, at: int | None = -1) -> Iterator[None]:
    lakes.flip_a_byte(path, at)
    try:
        yield
    finally:
        lakes.flip_a_byte(path, at)


def test_a_champion_is_as_it_was_promoted_also_in_a_lake_that_was_moved(promoted: Workspace, tmp_path: Path) -> None:
    findings = promoted.verify(is_deep=True)
    key = promoted.keys[0].keyid
    ends = f"4 statements follow one another, signed by trusted keys; {promoted.chain}/000004.json by {key}"
    assert findings[0] == ends
    assert any(f"files of synthetic@{VERSION} are those of its manifest" in each for each in findings)
    assert findings[-1] == "its 30 documents are scored as they were, to the last bit"
    assert promoted.verify("1", is_deep=True)[-1] == findings[-1]
    moved = Lake.at(str(shutil.copytree(promoted.lake, tmp_path / "lake")))
    assert promoted.verify(lake=moved, is_deep=True)[0].split("; ")[1].startswith(str(tmp_path))


def test_a_statement_says_what_it_rests_on(promoted: Workspace) -> None:
    payload = Envelope.from_dict(json.loads((promoted.chain / "000004.json").read_bytes())).payload
    statement = json.loads(payload)
    says, version = statement["predicate"], promoted.client.get_model_version("linker", "2")
    assert statement["subject"] == [{"name": "models:/linker/2", "digest": {"sha256": version.tags[MODEL_DIGEST_TAG]}}]
    assert says["decision"]["policy"]["guards"][0]["dataset"] == "synthetic"
    assert re.fullmatch("[0-9a-f]{64}", says["decision"]["scores"])
    assert [(each["role"], each["dataset"], each["split"]) for each in says["judged_on"]] == [
        ("target", f"synthetic@{VERSION}", "val"),
        ("guard", f"synthetic@{VERSION}", "val"),
    ]
    assert says["trained_on"]["sha256"] == says["judged_on"][0]["sha256"]
    assert says["code"]["sha256"] and says["libraries"]["torch"] and says["processor"]["device"] in ("cpu", "cuda")


def test_one_flipped_byte_is_refused_with_its_place(promoted: Workspace) -> None:
    version = promoted.lake / "datasets" / "synthetic" / VERSION
    shard, manifest = next(version.rglob("*.parquet")), version / "manifest.json"
    a_count = manifest.read_bytes().index(b'"documents": ') + len('"documents": ')  # a digit: the manifest is still one
    first, second = (next(_files_of(promoted, each).rglob("weights.pt")) for each in ("1", "2"))
    for path, at, options, error in (
        (shard, -1, {}, shard.name),
        (manifest, a_count, {}, "manifest.json: expected the manifest that was promoted on"),
        (second, -1, {}, r"weights\.pt"),
        (first, -1, {"version": "1"}, r"weights\.pt"),
        (first, -1, {"is_deep": True}, r"weights\.pt"),  # of the version that the champion was compared with
        (public_path(promoted.key), 40, {}, "expected"),
    ):
        with _flipped(path, at), pytest.raises((ConfigError, IntegrityError), match=error):
            promoted.verify(**options)
    with _flipped(first):
        assert promoted.verify()


def test_scores_that_come_out_otherwise_are_refused(promoted: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = evaluate_model

    def shifted(by: float) -> Callable[..., Any]:
        def scored(*arguments: Any, **named: Any) -> Any:
            found = evaluate(*arguments, **named)
            return replace(found, scores=replace(found.scores, table=found.scores.table - [by, 0, 0]))

        return scored

    monkeypatch.setattr(judging, "evaluate_model", shifted(0.01))
    with pytest.raises(IntegrityError, match=r"000004\.json: its scores have digest .*same kind of processor"):
        promoted.verify(is_deep=True)
    elsewhere = judging.processor() | {"name": "another"}
    here = judging.surroundings()
    for other, changed in (
        ("processor", {"processor": elsewhere}),
        ("code", {"code": {**here["code"], "sha256": "0" * 64}}),  # such as of a later release
        ("code and libraries", {"code": {}, "libraries": {}}),
    ):
        monkeypatch.setattr(judging, "surroundings", lambda changed=changed: here | changed)
        assert promoted.verify(is_deep=True)[-1] == (
            f"with another {other}, each condition comes out as it did, means within 0.1 points"
        )
    monkeypatch.setattr(judging, "evaluate_model", shifted(0.2))
    with pytest.raises(IntegrityError, match=r"000004\.json: expected .*; judged again: "):
        promoted.verify(is_deep=True)
    monkeypatch.setattr(judging, "evaluate_model", evaluate)
    assert promoted.verify(is_deep=True)[-1].endswith("; the scores are the same to the last bit")


def test_the_command_line_verifies(promoted: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    store, trust = ["--tracking-uri", promoted.client.tracking_uri], ["--trust", str(public_path(promoted.key))]
    for address in ("linker", "linker@champion", "models:/linker/2"):
        done = CliRunner().invoke(app, ["verify", address, *trust, *store], catch_exceptions=False)
        assert done.exit_code == 0 and "models:/linker/2 is as it was promoted" in done.output.splitlines()
    done = CliRunner().invoke(app, ["promotions", "linker", *store], catch_exceptions=False)
    assert promoted.keys[0].keyid[:12] in done.output and done.output.endswith("signatures: verified\n")
    monkeypatch.delenv("MULTILINK_KEY")  # nobody is trusted: no signer is named, and nothing is proved
    done = CliRunner().invoke(app, ["promotions", "linker", *store], catch_exceptions=False)
    assert promoted.keys[0].keyid[:12] not in done.output and "signatures: not checked" in done.output
    with pytest.raises(UsageError, match="no key is trusted, so nothing is proved"):
        CliRunner().invoke(app, ["verify", "linker", *store], catch_exceptions=False)


@pytest.mark.parametrize("path", ["MLmodel", "code/multilink_model.py", "requirements.txt", "conda.yaml"])
def test_every_file_of_a_version_counts(promoted: Workspace, path: str, tmp_path: Path) -> None:
    """Also those that our own loading never runs: MLflow's does."""
    file = _files_of(promoted, "2") / path
    refused = pytest.raises((IntegrityError, NotFoundError), match=path)
    with _flipped(file, None), refused:
        promoted.verify()
    hidden = file.rename(tmp_path / "hidden")
    with pytest.raises((IntegrityError, NotFoundError), match=path):
        promoted.verify()
    hidden.rename(file)
    for name, add in (("sitecustomize.py", Path.touch), ("linked.py", lambda added: added.symlink_to(file))):
        added = file.parent / name
        add(added)
        with pytest.raises(IntegrityError, match=name):
            promoted.verify()
        added.unlink()
    assert promoted.verify()


def _files_of(workspace: Workspace, version: str) -> Path:
    return Path(workspace.client.get_model_version_download_uri("linker", version).removeprefix("file://"))


def _change_and_seal(workspace: Workspace, version: str) -> Path:
    """Add a file to the model of a version, and seal its folder again; return that."""
    (folder,) = (each.parent for each in _files_of(workspace, version).rglob(SUMS))
    (folder / "other.json").write_text("{}")
    seal(folder)
    return folder


def _tag(workspace: Workspace, version: str, folder: Path) -> None:
    """Say in the registry that a version has the files that are there now."""
    digest = hashlib.sha256((folder / SUMS).read_bytes()).hexdigest()
    workspace.client.set_model_version_tag("linker", version, MODEL_DIGEST_TAG, digest)


def test_what_is_loaded_is_what_was_checked(promoted: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process changes files and tag while they are read, and puts them back before anything is compared."""
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    load, tag = LinkModel.load, promoted.client.get_model_version("linker", "2").tags[MODEL_DIGEST_TAG]
    folder = _change_and_seal(promoted, "2")

    def put_back(*arguments: Any, **named: Any) -> LinkModel:
        model = load(*arguments, **named)
        (folder / "other.json").unlink(missing_ok=True)
        seal(folder)
        promoted.client.set_model_version_tag("linker", "2", MODEL_DIGEST_TAG, tag)
        return model

    _tag(promoted, "2", folder)
    monkeypatch.setattr(LinkModel, "load", put_back)
    with pytest.raises(IntegrityError, match=r"names models:/linker/2, and another version"):
        _opens(promoted)
    promoted.client.set_model_version_tag("linker", "2", MODEL_DIGEST_TAG, tag)
    with pytest.raises(IntegrityError, match=r"expected the model that was recorded|\.json"):
        _opens(promoted)
    monkeypatch.undo()
    put_back(folder)
    assert promoted.verify()


@pytest.fixture
def workspace(stage: Registry, tmp_path: Path, learned: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with two versions that nobody has judged; nothing is signed."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return _workspace(stage, learned)


@pytest.fixture
def signing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The same, where this machine signs what is stated."""
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    return workspace


def _opens(workspace: Workspace, address: str = "linker") -> None:
    open_model(address, workspace.client.tracking_uri)


def test_where_champions_must_verify_others_are_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    client = workspace.client
    workspace.promote("1")
    _opens(workspace)
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    with pytest.raises(UsageError, match="no key is trusted"):
        _opens(workspace)
    monkeypatch.setenv("MULTILINK_TRUST", str(public_path(workspace.key)))
    unsigned = pytest.raises(IntegrityError, match=r"000001\.json: expected a trusted key's signature, found none")
    with unsigned:
        _opens(workspace)
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    with unsigned:  # nothing is signed on top of what is not
        workspace.promote("2")
    adopt(client, "linker")
    with pytest.raises(IntegrityError, match="models:/linker/2: no statement on its promotion was found"):
        _opens(workspace, "models:/linker/2")
    workspace.promote("2")
    _opens(workspace)
    rollback(client, "linker")
    _opens(workspace)
    assert workspace.verify(is_deep=True)[-1].endswith("to the last bit")
    monkeypatch.setenv("MULTILINK_VERIFY", "perhaps")
    with pytest.raises(ConfigError, match="MULTILINK_VERIFY = 'perhaps': expected true or false"):
        _opens(workspace)


def test_who_has_no_trusted_key_states_nothing_in_a_signed_record(
    signing: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing.promote("1")
    monkeypatch.setenv("MULTILINK_TRUST", str(public_path(signing.key)))
    make_key(signing.folder / "other.pem")
    monkeypatch.setenv("MULTILINK_KEY", str(signing.folder / "other.pem"))
    with pytest.raises(UsageError, match="is not among those that are trusted"):
        signing.promote("2")
    for trust in (str(public_path(signing.key)), ""):
        monkeypatch.setenv("MULTILINK_TRUST", trust)
        monkeypatch.delenv("MULTILINK_KEY", raising=False)
        with pytest.raises(UsageError, match="this machine has no key to sign with"):
            signing.promote("2")
    assert len(list(signing.chain.iterdir())) == 1


def test_a_policy_asks_for_verified_champions(workspace: Workspace) -> None:
    """The policy of the last promotion counts."""
    workspace.promote("1", policy=Policy(verify=True))
    with pytest.raises(UsageError, match="no key is trusted"):
        _opens(workspace)
    workspace.promote("2")
    _opens(workspace)


def test_an_alias_that_was_moved_by_hand_is_not_followed(signing: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    client = signing.client
    signing.promote("1", "2")
    client.set_registered_model_alias("linker", "champion", "1")
    for address in ("linker", "models:/linker@champion"):
        with pytest.raises(IntegrityError, match=r"alias champion of linker is version 1; by .*000002\.json it is 2"):
            _opens(signing, address)
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    _opens(signing, "models:/linker/1")  # which was champion once
    client.set_registered_model_alias("linker", "previous_champion", "2")
    with pytest.raises(IntegrityError, match=r"alias previous_champion of linker is version 2; .* it is 1"):
        _opens(signing, "models:/linker@previous_champion")
    align(client, "linker")
    _opens(signing)


def test_no_way_into_a_model_leads_past_its_statements(signing: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index (search, pages, programs), MLflow's own loader, serving, and a folder."""
    client, uri = signing.client, signing.client.tracking_uri
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    signing.promote("1")
    model, lake = LinkModel.load(signing.model), Lake.at(str(signing.lake))
    about = {"uri": "models:/linker/1", "name": "linker-1", "say": print}
    index = build_index(model, lake, "synthetic", sign=sign_index, accepts=accepts_index, **about).folder.uri
    ways: dict[str, Callable[[], object]] = {
        "index": lambda: Archive(index).__exit__(),
        "search": lambda: CliRunner().invoke(
            app, ["search", "--index", index, "--like", _picture_of(lake)], catch_exceptions=False
        ),
        "pyfunc": lambda: mlflow.pyfunc.load_model("models:/linker/1"),
        "pyfunc of MLflow 3.18": lambda: _loaded_without_note(signing, "1"),
        "serve": lambda: next(run_serve(model="linker", host="127.0.0.1", port=0, tracking=uri)),
        "link": lambda: _opens(signing),
    }

    def outcomes(error: type[Exception] | None, why: str = "") -> None:
        for name, way in ways.items():
            with nullcontext() if error is None else pytest.raises(error, match=why):
                way()
                assert error is None, name

    outcomes(None)
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    outcomes(None)
    for path in sorted(Path(index).rglob("*")):
        if path.is_file() and path.name not in ("manifest.json", SUMS):
            with _flipped(path), pytest.raises(IntegrityError, match=re.escape(path.name)):
                Archive(index)
    with pytest.raises(IntegrityError, match="expected a champion that verifies, since verify = true; "):
        _opens(signing, str(signing.model))
    for folder in (signing.model, _files_of(signing, "2")):  # no logged model, and one that nobody promoted
        with pytest.raises(IntegrityError, match=r"since verify = true|no statement"):
            load_logged(folder / "data" / "model" if folder != signing.model else folder)
    monkeypatch.setenv("MULTILINK_KEY", str(signing.folder / "none.pem"))
    outcomes(UsageError, "no key is trusted")
    make_key(signing.folder / "other.pem")
    monkeypatch.setenv("MULTILINK_TRUST", str(signing.folder / "other.pub.pem"))
    outcomes(IntegrityError, "expected a trusted key's signature")
    monkeypatch.delenv("MULTILINK_VERIFY")
    outcomes(IntegrityError, "expected a trusted key's signature")  # the setting names keys, and nobody of them signed
    monkeypatch.setenv("MULTILINK_KEY", str(signing.key))
    monkeypatch.delenv("MULTILINK_TRUST")
    outcomes(None)
    promotion = record_of(client, "linker").promotion("1")
    decision = {**promotion.decision, "policy": {"forget_within_days": 0}}
    evidence = {name: promotion.predicate[name] for name in ("files", "calibration", "trained_on", "judged_on")}
    change_champion(client, record_of(client, "linker"), ("1",), decision=decision, **evidence)
    taint(client, lake, "synthetic", VERSION, documents=1, images=1)
    client.delete_model_version_tag("linker", "1", TAINTED)
    outcomes(GateError, "its policy allows its use for 0 days")


def _picture_of(lake: Lake) -> str:
    """Return the hash of a picture of the data set."""
    return read_split(*read_manifest(lake, "synthetic"), Split.TEST, Columns(images="auto")).image_hashes[0]


def _loaded_without_note(workspace: Workspace, version: str) -> mlflow.pyfunc.PyFuncModel:
    """Load as MLflow does from 3.18 on, which leaves no note of the version that it has brought."""
    (_files_of(workspace, version) / ADDRESS_FILE).unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelsArtifactRepository, "_add_registered_model_meta_file", lambda *_: None, raising=False)
        return mlflow.pyfunc.load_model(f"models:/linker/{version}")


def test_mlflows_loader_asks_the_registry_which_version_it_has(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its run, since both have the same weights; of a version whose files are others by that, too."""
    found = [_loaded_without_note(workspace, version)._model_impl.linker.uri for version in ("1", "2")]
    assert found == ["models:/linker/1", "models:/linker/2"]
    _change_and_seal(workspace, "2")
    with pytest.raises(IntegrityError, match="expected the model that was recorded"):
        _loaded_without_note(workspace, "2")
    workspace.promote("1", policy=Policy(verify=True))
    for way in (mlflow.pyfunc.load_model, lambda _: _loaded_without_note(workspace, "1")):
        with pytest.raises(UsageError, match="no key is trusted"):  # the policy asks for it, not this machine
            way("models:/linker/1")


def test_an_index_of_a_champion_holds_the_files_that_were_promoted(
    signing: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the code of now would write the same model otherwise, as after a release."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", signing.client.tracking_uri)
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    signing.promote("1")
    loaded, save = open_model("linker", None), LinkModel.save

    def otherwise(model: LinkModel, folder: Path) -> None:
        save(model, folder)
        (folder / "later.json").write_text("{}")
        seal(folder)

    monkeypatch.setattr(LinkModel, "save", otherwise)
    lake, about = Lake.at(str(signing.lake)), {"uri": loaded.uri, "name": loaded.index_name, "say": print}
    built = build_index(
        loaded.model,
        lake,
        "synthetic",
        save=partial(write_model, loaded),
        sign=sign_index,
        accepts=accepts_index,
        **about,
    )
    Archive(built.folder.uri).__exit__()


def test_an_index_is_signed_by_who_makes_it(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its manifest calls its model: the files of another one are no champion's, and no class names."""
    lake, model = Lake.at(str(workspace.lake)), LinkModel.load(workspace.model)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", workspace.client.tracking_uri)

    def made(uri: str) -> Path:
        built = build_index(
            model, lake, "synthetic", uri=uri, name="made", sign=sign_index, accepts=accepts_index, say=print
        )
        return Path(built.folder.uri)

    unsigned = made("class-names")
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    with pytest.raises(IntegrityError, match=r"signature\.json: expected a trusted key's signature of this manifest"):
        Archive(unsigned)
    index = made("class-names")  # made anew: nothing is signed that somebody else has made
    Archive(index).__exit__()
    assert accepts_index(Folder(str(index)))
    manifest = index / "manifest.json"
    with _flipped(index / "signature.json", 30), pytest.raises(IntegrityError, match=r"signature\.json"):
        Archive(index)
    at = manifest.read_bytes().index(b"class-names")
    with _flipped(manifest, at), pytest.raises(IntegrityError, match="expected a champion that verifies"):
        Archive(index)
    other = pytest.raises(IntegrityError, match=r"signature\.json: expected a trusted key's signature of this manifest")
    with _flipped(manifest, manifest.read_bytes().index(b'"rank_by": "') + 12), other:
        Archive(index)


def test_an_approval_that_nobody_stated_is_none(signing: Workspace) -> None:
    client, policy = signing.client, Policy(approval=True)
    client.set_model_version_tag("linker", "1", "approved_by", "Ann")  # by hand, in the registry
    assert signing.promote("1", policy=policy).is_waiting
    approve(client, "linker", "1", by="Ann")
    assert signing.promote("1", policy=policy).is_promoted and signing.verify()
    record = record_of(client, "linker")
    change_champion(client, record, ["1"], decision={**record.changes[-1].decision, "approved_by": "Bo"})
    with pytest.raises(IntegrityError, match=r"000004\.json: approved by Bo; expected a statement of that approval"):
        signing.verify()


def test_an_approval_is_of_the_files_that_were_approved(signing: Workspace) -> None:
    client, policy = signing.client, Policy(approval=True, approvers=("Ann",))
    approve(client, "linker", "1", by="Ann")
    _tag(signing, "1", _change_and_seal(signing, "1"))
    assert signing.promote("1", policy=policy).reasons[-1] == "waits for approval by Ann (multilink approve)"
    approve(client, "linker", "1", by="Ann")
    assert signing.promote("1", policy=policy).is_promoted and signing.verify("1")


def test_a_policy_may_bind_an_approver_to_a_key(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    client, own = workspace.client, workspace.keys[0].keyid
    make_key(workspace.folder / "other.pem")
    monkeypatch.setenv("MULTILINK_TRUST", f"{public_path(workspace.key)}:{workspace.folder}/other.pub.pem")
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.folder / "other.pem"))
    policy = Policy(approval=True, approvers=(f"Ann:{own[:16]}",))
    approve(client, "linker", "1", by="Ann")  # somebody who says that this is Ann
    assert workspace.promote("1", policy=policy).reasons[-1].endswith("; Ann approved it and is not one of them")
    monkeypatch.setenv("MULTILINK_KEY", str(workspace.key))
    approve(client, "linker", "1", by="Ann")
    assert workspace.promote("1", policy=policy).approved_by == "Ann"
    assert verify_champion(client, "linker", "champion", keys=keys_of(), say=print)


def test_a_former_champion_that_is_refused_later_can_be_rolled_back_to(
    signing: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = signing.client
    signing.promote("1", "2")
    assert not signing.promote("1", policy=Policy(minimum=Minimum(auc=100))).is_promoted
    rollback(client, "linker")
    assert signing.verify(is_deep=True)[-1].endswith("to the last bit")
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    _opens(signing)


def test_the_calibration_is_that_of_the_promotion(signing: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"dataset": "synthetic", "lake": str(signing.lake), "tracking": signing.client.tracking_uri}
    run_evaluate(model="models:/linker/1", **about, say=print)
    signing.promote("1")
    assert any(line.startswith("its calibration has the digest ") for line in signing.verify())
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    _opens(signing)
    (path,) = (signing.folder / "mlartifacts").rglob("calibration.json")
    at = re.search(rb'"intercept": -?\d', path.read_bytes())
    with _flipped(path, at.end() - 1):
        for check in (signing.verify, lambda: _opens(signing)):
            with pytest.raises(
                IntegrityError, match=r"models:/linker/1: calibration\.json has digest .*; it was promoted"
            ):
                check()
        assert signing.promote("1").is_promoted  # states this one
        _opens(signing)


def test_a_champion_before_that_was_deleted_is_named(signing: Workspace) -> None:
    signing.promote("1", "2")
    signing.client.delete_model_version("linker", "1")
    assert signing.verify()
    with pytest.raises(NotFoundError, match=r"was compared with version 1, which was deleted.* without --deep"):
        signing.verify(is_deep=True)


def test_a_lake_that_was_moved_is_named_by_its_new_address(signing: Workspace) -> None:
    client, uri = signing.client, signing.client.tracking_uri
    signing.promote("1")
    new = signing.folder / "moved"
    signing.lake.rename(new)
    incomplete = rf"incomplete \(0 of 1 statements\): restore {signing.chain} from a backup, .* multilink relocate"
    with pytest.raises(IntegrityError, match=incomplete):
        signing.promote("2", lake=Lake.at(str(new)))
    (signing.folder / "empty").mkdir()
    with pytest.raises(IntegrityError, match=r"incomplete \(0 of 1 statements\)"):
        relocate_lake(client, str(signing.lake), Lake.at(str(signing.folder / "empty")))
    command = ["relocate", "--from", str(signing.lake), "--lake", str(new), "--tracking-uri", uri]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.output == f"3 addresses of {signing.lake} in {uri} are {new} now\n"
    assert signing.promote("2").is_promoted and signing.verify(is_deep=True)
    rollback(client, "linker")
    with pytest.raises(UsageError, match="names this lake; nothing was changed"):
        relocate_lake(client, str(signing.lake), Lake.at(str(new)))
    with pytest.raises(UsageError, match="expected both --from OLD and --lake NEW"):
        CliRunner().invoke(app, [*command[:3], *command[5:]], catch_exceptions=False, env={"MULTILINK_LAKE": ""})


def test_a_tainted_champion_is_used_as_long_as_its_policy_says(
    signing: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, lake = signing.client, Lake.at(str(signing.lake))
    signing.promote("1", policy=Policy(forget_within_days=30, verify=True))
    assert {each.version for each in taint(client, lake, "synthetic", VERSION, documents=2, images=3)} == {"1", "2"}
    _opens(signing)  # from now on for 30 days
    why = f"trained on synthetic@{VERSION}, out of which 2 documents and 3 images were taken on "
    assert championships(record_of(client, "linker"))[0]["tainted"].startswith(why)
    client.delete_model_version_tag("linker", "1", TAINTED)  # the record counts
    for days, refused in ((29, nullcontext()), (31, pytest.raises(GateError, match=f"linker/1 was {why}.*another"))):
        later = SimpleNamespace(
            now=lambda tz, days=days: datetime.now(tz) + timedelta(days=days), fromisoformat=datetime.fromisoformat
        )
        monkeypatch.setattr(proof, "datetime", later)
        with refused:
            _opens(signing)

    signing.add_version(signing.model)  # on data without it, as a rebuild gives
    signing.promote("3")
    statement = record_of(client, "linker").statements[-1].predicate
    assert statement["replaces"]["version"] == "1" and statement["replaces"]["tainted"].startswith(why)
    _opens(signing)


def test_a_taint_waives_no_check_of_data_that_is_there(signing: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    client, folder = signing.client, signing.lake / "datasets" / "synthetic" / VERSION
    signing.promote("1")
    hidden = folder.rename(signing.folder / "hidden")  # as a takedown leaves it, under another name
    with pytest.raises(NotFoundError, match="is no longer in the lake, and no signed statement on a removal"):
        signing.verify()
    taken = {"dataset": f"synthetic@{VERSION}", "documents": 1, "images": 1}
    append(client, record_of(client, "linker"), find_version(client, "linker", "1"), TAINTED, taken)
    assert signing.verify(is_deep=True)[-2:] == [
        f"something was taken out of synthetic@{VERSION} after the promotion, so its files cannot be compared",
        "its scores cannot be compared",
    ]
    monkeypatch.setenv("MULTILINK_VERIFY", "true")
    _opens(signing)  # nothing that is there is another
    hidden.rename(folder)
    with _flipped(next(folder.rglob("*.parquet"))), pytest.raises(IntegrityError, match=r"\.parquet"):
        signing.verify(is_deep=True)
