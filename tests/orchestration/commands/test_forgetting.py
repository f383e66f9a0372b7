"""The commands: takedown and forget, with models in a real registry; text and JSON."""

import json
import shutil
from pathlib import Path
from typing import Any

import lakes
import pytest
from builds import PLAIN, build
from PIL import Image
from typer.testing import CliRunner

from orchestration.cli import app
from orchestration.workflows import takedowns
from pipelines.forgetting.forget import forget
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from schemas.messages import MultilinkError
from training.data.documents import ALL_SENTENCES
from training.data.lake import Columns
from training.data.mapped import CACHE
from training.data.split import TrainingSplit
from training.mlflow.champions import record_of, taint
from training.mlflow.runs import connect

SECRET = "The recipe that was never to be told."


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build six own documents, of which two share a picture; return the folder of documents and lake."""
    folder = tmp_path_factory.mktemp("built")
    for number in range(6):
        Image.effect_noise((80 + number, 60), 90).convert("RGB").save(folder / f"{number}.png")
    records = [
        {"id": f"p{number}", "sentences": [SECRET if number == 3 else f"Step {number}."], "images": [{"path": path}]}
        for number, path in enumerate(("0.png", "1.png", "2.png", "3.png", "4.png", "4.png"))
    ]
    path = folder / "documents.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    build(path, folder / "lake", *PLAIN)
    return folder


@pytest.fixture(scope="module")
def grown(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same lake with a second version, of the first document alone."""
    folder = tmp_path_factory.mktemp("grown")
    shutil.copytree(built, folder, dirs_exist_ok=True)
    (folder / "few.jsonl").write_text((folder / "documents.jsonl").read_text(encoding="utf-8").partition("\n")[0])
    build(folder / "few.jsonl", folder / "lake", *PLAIN)
    return folder / "lake"


@pytest.fixture
def lake(built: Path, tmp_path: Path) -> Lake:
    """A copy of it, to take from."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return Lake.at(str(tmp_path / "lake"))


def run(lake: Lake, *arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--lake", lake.root.uri])
    assert result.exit_code == status, result.output + str(result.exception)
    return result.stdout


def values(lake: Lake, *arguments: str) -> dict[str, Any]:
    return json.loads(run(lake, *arguments, "--json").splitlines()[-1])


@pytest.fixture
def store(empty_store: str, tmp_path: Path, lake: Lake) -> str:
    """A registry with a model that was trained on the version, and one that was not."""
    client = connect(empty_store)
    for name, version in (("multilink-documents-x", str(lake.latest("documents"))), ("other", "0" * 16)):
        client.create_registered_model(name)
        tags = {"dataset": "documents", "dataset_version": version}
        client.create_model_version(name, source=str(tmp_path), tags=tags)
    return empty_store


def test_takedown_names_what_holds_it_and_changes_nothing(lake: Lake, store: str) -> None:
    version = lake.latest("documents")
    before = {path: lake.root.read(path) for path in lake.root.files()}
    (row,) = values(lake, "lake", "takedown", "p3", "--tracking-uri", store)["versions"]
    assert (row["version"], row["documents"], len(row["images"])) == (version, ["p3"], 1)
    assert row["models"] == ["models:/multilink-documents-x/1"]
    assert {path: lake.root.read(path) for path in lake.root.files()} == before
    assert "no version contains any of it" in run(lake, "lake", "takedown", "id:nosuch")


def test_forget_says_what_would_go_and_with_yes_it_goes(lake: Lake, tmp_path: Path) -> None:
    told = values(lake, "lake", "forget", "p3")
    assert told["dry_run"] and told["packs"] and told["replaced"] == {f"documents@{lake.latest('documents')}": ""}
    assert "nothing was changed" in run(lake, "lake", "forget", "p3")
    (tmp_path / "list.txt").write_text("id:p3  # asked for by its author\n", encoding="utf-8")
    assert "all of it is removed" in run(lake, "lake", "forget", "--list", f"{tmp_path}/list.txt", "--yes")
    (version,) = lake.versions("documents")
    assert lake.latest("documents") == version
    assert "no version contains any of it" in run(lake, "lake", "takedown", "p3")
    assert run(lake, "datasets", "verify", "documents").startswith(f"documents@{version}: intact")


def test_what_this_host_keeps_for_training_goes(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    manifest, folder = read_manifest(lake, "documents")
    about = {"manifest": manifest, "folder": folder, "columns": Columns(), "view": ALL_SENTENCES}
    for split in (name for name in manifest.splits if manifest.parts("documents", name)):
        lakes.whole(TrainingSplit(split=Split(split), **about))
    kept = [path for path in (tmp_path / "cache").rglob("*.arrow") if SECRET.encode() in path.read_bytes()]
    assert kept
    run(lake, "lake", "forget", "p3")
    assert all(path.exists() for path in kept)
    run(lake, "lake", "forget", "p3", "--yes")
    assert not list((tmp_path / "cache").rglob("*.arrow"))


def test_models_trained_on_what_goes_are_tainted(lake: Lake, store: str, grown: Path, tmp_path: Path) -> None:
    version, client = str(lake.latest("documents")), connect(store)
    shutil.copytree(grown, tmp_path / "lake", dirs_exist_ok=True)
    stays = str(lake.latest("documents"))
    made, kept = (
        [f"{kind}/documents/{stays}/{model}" for kind in ("links", "indexes")]
        for model in ("multilink-documents-x-1", "other-1")
    )
    for path in (*made, *kept):
        lake.root.child(path).write("manifest.json", b"{}")
    where = ("--tracking-uri", store, "--models")
    told = values(lake, "lake", "forget", "p3", *where)
    assert told["made_by_models"] == made and all(lake.root.child(path).exists() for path in made)
    assert "tainted" not in client.get_model_version("multilink-documents-x", "1").tags

    done = values(lake, "lake", "forget", "p3", "--yes", *where)
    assert done["made_by_models"] == made and done["versions"][0]["models"] == ["models:/multilink-documents-x/1"]
    assert [path for path in (*made, *kept) if lake.root.child(path).exists()] == kept
    (statement,) = record_of(client, "multilink-documents-x").statements
    expected = {"event": "tainted", "dataset": f"documents@{version}", "documents": 1, "images": 1}
    assert {name: statement.predicate[name] for name in expected} == expected
    assert "p3" not in json.dumps({**statement.predicate})  # what is forgotten is not named
    assert "promotions" not in client.get_registered_model("other").tags

    tagged = json.loads(client.get_model_version("multilink-documents-x", "1").tags["tainted"])
    assert tagged["dataset"] == f"documents@{version}"
    taint(client, lake, "documents", version, documents=1, images=1)  # as after a death on the way
    assert len(record_of(client, "multilink-documents-x").statements) == 1
    assert "no version contains any of it" in run(lake, "lake", "takedown", "p3", "--tracking-uri", store)


def test_what_a_tainted_model_made_goes_though_the_first_call_was_killed(
    lake: Lake, store: str, grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the documents went and before the links did: the second call holds nothing, and knows the models."""
    shutil.copytree(grown, tmp_path / "lake", dirs_exist_ok=True)
    made = lake.links("documents", str(lake.latest("documents")), "multilink-documents-x", "1")
    made.write("manifest.json", b"{}")
    command = ["lake", "forget", "p3", "--yes", "--models", "--tracking-uri", store, "--lake", lake.root.uri]

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as dying, pytest.raises(Killed):
        dying.setattr("orchestration.workflows.takedowns.remove_made_by_models", die)
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert made.exists() and "no version contains any of it" in run(lake, "lake", "takedown", "p3")
    again = CliRunner().invoke(app, command, catch_exceptions=False).output
    assert "what a tainted model made were removed" in again and not made.exists()


def test_a_model_that_is_registered_while_its_data_is_removed_is_tainted(
    lake: Lake, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, tags = connect(store), {"dataset": "documents", "dataset_version": str(lake.latest("documents"))}
    about = ("multilink-documents-x", str(tmp_path), None, tags)
    monkeypatch.setattr(
        takedowns, "forget", lambda *of, **how: (forget(*of, **how), client.create_model_version(*about))[0]
    )
    told = run(lake, "lake", "forget", "p3", "--yes", "--tracking-uri", store)
    assert "models:/multilink-documents-x/2" in told and record_of(client, "multilink-documents-x").taint("2")


def test_models_that_depend_on_it_in_other_ways_are_tainted(lake: Lake, store: str, tmp_path: Path) -> None:
    client, version = connect(store), str(lake.latest("documents"))
    run_id = client.create_run("0").info.run_id
    client.delete_run(run_id)  # on MLflow's page: the version stays, and what it was trained from
    of_lake = {"dataset": "documents", "lake": lake.root.uri}
    client.create_registered_model("children")
    for tags in (
        {"dataset": "else", "dataset_version": "1", "start_from": "caption=models:/multilink-documents-x/1"},
        {"dataset": "else", "dataset_version": "1", "start_from": "models:/multilink-documents-x/12"},  # that is none
        {"dataset_version": "gone"},  # on a version that is not in the lake any more
    ):
        client.create_model_version("children", str(tmp_path), run_id=run_id, tags={**of_lake, **tags})
    found = values(lake, "lake", "forget", "p3", "--yes", "--tracking-uri", store)["versions"]
    assert found[0]["models"] == ["models:/multilink-documents-x/1", "models:/children/3", "models:/children/1"]
    record = record_of(client, "children")
    went = f"out of documents@{version} 1 documents and 1 images were taken on"
    assert str(record.taint("1")).startswith(f"trained from models:/multilink-documents-x/1; {went}")
    assert str(record.taint("3")).startswith(f"trained on documents@gone, which is not in the lake any more; {went}")
    assert record.taint("2") is None
    assert {"tainted"} < client.get_model_version("children", "3").tags.keys()


def test_without_a_store_of_models_a_warning_says_that_none_is_known(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    for command in ("takedown", "forget"):
        told = CliRunner().invoke(app, ["lake", command, "p3", "--lake", lake.root.uri], catch_exceptions=False).output
        assert "warning: sqlite:///" in told and "so models that were trained on this are not known" in told


def test_what_names_nothing_is_a_mistake(lake: Lake) -> None:
    for arguments in (["lake", "forget"], ["lake", "takedown", "url:nothing"], ["lake", "takedown", "--list", "/none"]):
        with pytest.raises(MultilinkError):
            CliRunner().invoke(app, [*arguments, "--lake", lake.root.uri], catch_exceptions=False)


@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_what_is_nowhere_is_not_said_to_be_removed(lake: Lake, more: tuple[str, ...]) -> None:
    text = run(lake, "lake", "forget", "nosuch", *more)
    assert "nothing of it was found in this lake" in text and "removed" not in text
    assert "not searched: copies in other lakes, exports, files outside the lake" in text
    found = values(lake, "lake", "forget", "nosuch", *more)
    assert (found["found"], found["not_covered"]) == (False, [])


def test_forget_reaches_what_editors_decided_and_labelled(lake: Lake) -> None:
    from newsroom.decisions.database import database_in, open_database
    from newsroom.decisions.records import Action, Decision, Ranking, ShownPicture
    from newsroom.decisions.store import Store

    version = f"documents@{lake.latest('documents')}"
    (image,) = values(lake, "lake", "takedown", "p3")["versions"][0]["images"]
    of = {"dataset": version, "model": "models:/linker/2"}
    shown = ShownPicture(image=image, score=1.0, title=SECRET)
    ranking = Ranking(texts={"headline": "x"}, models=(of["model"],), dataset=version, pictures=(shown,))
    with Store(open_database(database_in(lake.root.uri))) as log:
        log.decide(Decision(action=Action.FITS, image=image, document="p3", sentence=0, article="0" * 64, **of))
        log.decide(Decision(action=Action.CHOOSE, image=image, **of), ranking)
    assert values(lake, "lake", "forget", "p3")["on_pages"] == 3
    assert "the pages' database of this lake" in run(lake, "lake", "forget", "p3", "--yes").splitlines()[-1]
    left = b"".join(path.read_bytes() for path in lake.root.local.rglob("*") if path.is_file())
    assert image.encode() not in left and SECRET.encode() not in left
