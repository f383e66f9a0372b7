"""A takedown reaches the champion: forgotten, rebuilt, trained, judged, stated; and searches find nothing of before."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dagster as dg
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from newsroom.search.archive import Archive
from orchestration.cli import app
from orchestration.config import DatasetSettings, Settings
from orchestration.dagster.definitions import make_definitions, unseen
from orchestration.plan import Plan
from schemas.lake import Lake
from training.mlflow.champions import record_of
from training.mlflow.registry import CHALLENGER
from training.mlflow.runs import connect

sys.path.insert(0, str(Path(__file__).parent))
from in_process import InProcess

pytestmark = [pytest.mark.trial, pytest.mark.filterwarnings("ignore:Specifying a partitions_def on an AssetCheckSpec")]
COLOURS = {"red": (220, 20, 20), "green": (20, 160, 40), "blue": (30, 40, 220), "yellow": (240, 220, 20)}
COLOURS |= {"black": (10, 10, 10), "white": (245, 245, 245), "pink": (250, 120, 190), "brown": (120, 70, 20)}
SPLITS = ["train"] * 24 + ["val"] * 8 + ["test"] * 8
POLICY = "margin = 50\nmin_documents = 5\nforget_within_days = 30\n"  # eight documents can show no smaller margin
NAME = "multilink-documents-closed-form"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Forty documents of three walls each, in colours that their sentences name."""
    folder, draws = tmp_path_factory.mktemp("takedown"), np.random.default_rng(0)
    records = []
    for number, split in enumerate(SPLITS):
        names = draws.choice(sorted(COLOURS), 3, replace=False).tolist()
        for place, name in enumerate(names):
            noise = draws.normal(0, 12, (96, 96, 3)) + np.array(COLOURS[name])
            Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(folder / f"{number}-{place}.png")
        images = [{"path": f"{number}-{place}.png"} for place in range(3)]
        texts = [f"The wall of house {3 * number + place} is {name}." for place, name in enumerate(names)]
        links = [[place, place] for place in range(3)]
        records.append({"id": f"p{number}", "split": split, "sentences": texts, "images": images, "links": links})
    (folder / "documents.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "list.txt").write_text("# nothing yet\n")
    (folder / "policy.toml").write_text(POLICY)
    dataset = DatasetSettings(
        name="documents",
        settings=(f"source.documents={folder}/documents.jsonl", f"takedown_list={folder}/list.txt"),
        objectives=("closed-form",),
        policy=f"{folder}/policy.toml",
    )
    tracking = f"sqlite:///{folder}/mlflow.db"
    return Settings(lake=str(folder / "lake"), tracking_uri=tracking, datasets=(dataset,))


def materialise(instance: dg.DagsterInstance, settings: Settings) -> None:
    job = make_definitions(settings, InProcess()).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=instance, partition_key="documents").success


def test_a_takedown_reaches_the_champion(settings: Settings, tmp_path: Path) -> None:
    lake, client = Lake.at(settings.lake), connect(settings.tracking_uri)
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        materialise(instance, settings)
        before = str(lake.latest("documents"))
        first = record_of(client, NAME)
        assert first.champion == "1"
        command = ["lake", "forget", "p3", "--yes", "--models", "--tracking-uri", settings.tracking_uri]
        done = CliRunner().invoke(app, [*command, "--lake", settings.lake, "--json"], catch_exceptions=False)
        told = json.loads(done.stdout.splitlines()[-1])
        gone = set(told["images"])
        assert len(gone) == 3 and told["versions"][0]["models"] == [f"models:/{NAME}/1"]
        assert not list(lake.root.child("indexes").files()) and not list(lake.root.child("links").files())

        (Path(settings.lake).parent / "list.txt").write_text("id:p3\n")  # as the steward does
        materialise(instance, settings)
        after = str(lake.latest("documents"))
        record = record_of(client, NAME)
        assert after != before and record.champion == "2"
        assert str(record.taint("1")).startswith(
            f"trained on documents@{before}, out of which 1 documents and 3 images"
        )
        replaced = record.statements[-1].predicate["replaces"]
        assert replaced == {"version": "1", "tainted": str(record.taint("1"))}
        assert record.policy("2")["forget_within_days"] == 30
        with Archive(lake.index("documents", after, f"{NAME}-2").uri) as archive:
            assert archive.index.records.rows_of(sorted(gone)) == [None] * 3
            found = archive.search(caption="A wall that is red.", top=200)
            assert {each.picture.image for each in found.images} and not gone & {
                each.picture.image for each in found.images
            }
        assert lake.links("documents", after, NAME, "2").exists()
        for kind in ("links", "indexes"):
            assert not [path for path in lake.root.child(kind).files() if f"{NAME}-1/" in path]

        # The sensor looks once more: nothing is new, and an alias set by hand is put right.
        client.set_registered_model_alias(NAME, "champion", "1")
        assert list(unseen(instance, Plan(settings=settings), "documents", "closed-form")) == []
        assert client.get_registered_model(NAME).aliases == {"champion": 2, "previous_champion": 1, CHALLENGER: 2}
