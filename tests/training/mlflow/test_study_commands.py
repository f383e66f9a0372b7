"""Options of evaluate, and transfer as a command, over real lakes and models."""

import json
from pathlib import Path

import lakes
import mlflow
import pyarrow.parquet as pq
import pytest

from orchestration.cli import run
from schemas.errors import NotFoundError
from schemas.lake import Lake
from training.evaluation.judge import judge_model
from training.evaluation.models import evaluate_model
from training.metrics.calibration import read_calibration
from training.model import LinkModel
from training.workflows.studies import run_transfer


def test_models_are_judged_on_every_data_set(
    client: mlflow.MlflowClient, registry_lake: Lake, trained: Path, untrained: Path
) -> None:
    lines: list[str] = []
    cells = run_transfer(
        models=[str(trained), str(untrained)],
        datasets=["synthetic@v1", "synthetic"],
        lake=registry_lake.root.uri,
        tracking=client.tracking_uri,
        say=lines.append,
    )
    assert [(cell.model, cell.dataset) for cell in cells] == [
        (str(model), "synthetic@v1") for model in (trained, trained, untrained, untrained)
    ]
    expected = evaluate_model(LinkModel.load(trained), registry_lake, "synthetic").mean
    assert cells[0].means == expected and not cells[0].is_transfer and len(lines) == 4
    with pytest.raises(NotFoundError, match="nowhere"):
        run_transfer(
            models=[str(trained)],
            datasets=["nowhere"],
            lake=registry_lake.root.uri,
            tracking=client.tracking_uri,
            say=print,
        )


def test_a_data_set_without_the_models_columns_is_a_cell_with_its_reason(
    client: mlflow.MlflowClient, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = lakes.World(text_dimensions=12, image_dimensions=9)
    lake = lakes.write_lake(tmp_path / "lake", lakes.splits(world, test=4), world=world).root.uri
    arguments = ["transfer", "--lake", lake, "--models", str(trained), "--datasets", "synthetic"]
    assert run([*arguments, "--tracking-uri", client.tracking_uri, "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    (cell,) = json.loads(printed[-1])["cells"]
    assert cell["problem"] and "auc" not in cell
    assert any(line.startswith(f"- {trained} on synthetic@v1: ") for line in printed)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--scores", __file__, "--set", "samples=3"], "evaluate --scores: expected no --dataset, --set"),
        (["--report", "report"], "evaluate: expected --model as well"),
        (["--model", "x", "--set", "word_vector=x"], "unknown key 'word_vector'"),
    ],
)
def test_what_evaluate_cannot_do_is_said(
    options: list[str], problem: str, registry_lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", "--lake", registry_lake.root.uri, "--dataset", "synthetic", *options]) == 2
    assert problem in capsys.readouterr().err


def test_a_calibration_on_another_data_set_is_a_file_that_links_take(
    client: mlflow.MlflowClient, registry_lake: Lake, trained: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path, store = tmp_path / "people.json", ["--tracking-uri", client.tracking_uri]
    where = ["--model", str(trained), "--dataset", "synthetic", "--lake", registry_lake.root.uri, *store]
    assert run(["evaluate", *where, "--no-baselines", "--calibration", str(path)]) == 0
    written = read_calibration(path)
    assert written == judge_model(LinkModel.load(trained), registry_lake, "synthetic").calibration
    links = ["--output", str(tmp_path / "links"), "--calibration", str(path), "--split", "test"]
    assert run(["link", *where, *links]) == 0
    part = next((tmp_path / "links").rglob("links/**/*.parquet"))
    assert None not in pq.read_table(part, columns=["probability"])["probability"].to_pylist()

    without = lakes.splits(test=4)  # no validation split
    lake = lakes.write_lake(tmp_path / "lake", without).root.uri
    arguments = ["--model", str(trained), "--dataset", "synthetic", "--lake", lake, *store, "--calibration", str(path)]
    assert run(["evaluate", *arguments, "--no-baselines"]) == 2
    assert "--calibration: synthetic@v1 has none: " in capsys.readouterr().err
