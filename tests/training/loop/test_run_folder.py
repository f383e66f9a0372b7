import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from schemas.lake import Folder
from training.loop.run_folder import fetch_model, following, record_epoch, record_progress, store_model


def test_each_epoch_is_told_once_and_in_order(tmp_path: Path) -> None:
    run = Folder(str(tmp_path))
    record_epoch(run, {"epoch": 1.0, "loss": 0.5})
    told: list[Mapping[str, float]] = []
    is_told = threading.Event()

    def on_report(metrics: Mapping[str, float]) -> None:
        told.append(metrics)
        if metrics["epoch"] == 2:
            is_told.set()

    with following(run, on_report):
        record_epoch(run, {"epoch": 2.0, "loss": 0.4})
        assert is_told.wait(10)  # told while the body runs
        record_epoch(run, {"epoch": 2.0, "loss": 0.4})  # a worker that restarted
        record_epoch(run, {"epoch": 10.0, "loss": 0.3})
    assert [metrics["epoch"] for metrics in told] == [1, 2, 10]
    assert told[0] == {"epoch": 1.0, "loss": 0.5}


def test_a_new_line_of_progress_is_told_and_an_old_one_is_not(tmp_path: Path) -> None:
    run = Folder(str(tmp_path))
    record_progress(run, "of the run before")
    told: list[str] = []
    is_told = threading.Event()

    def on_progress(line: str) -> None:
        told.append(line)
        is_told.set()

    with following(run, None, on_progress):
        record_progress(run, "step 1")
        assert is_told.wait(10)
    assert told == ["step 1"]


def test_what_the_callback_raises_is_raised(tmp_path: Path) -> None:
    run = Folder(str(tmp_path))
    record_epoch(run, {"epoch": 1.0})

    def on_report(metrics: Mapping[str, float]) -> None:
        raise RuntimeError("cannot log")

    with pytest.raises(RuntimeError, match="cannot log"), following(run, on_report):
        pass


def test_the_error_of_the_body_comes_first(tmp_path: Path) -> None:
    with pytest.raises(KeyError), following(Folder(str(tmp_path)), print):
        raise KeyError("body")


def test_a_stored_model_is_fetched_in_place(tmp_path: Path) -> None:
    model, run = tmp_path / "model", Folder(str(tmp_path / "run"))
    (model / "words").mkdir(parents=True)
    (model / "model.json").write_text("{}")
    (model / "words" / "list.txt").write_text("dog")
    store_model(run, model)
    fetched = fetch_model(run)
    assert fetched == tmp_path / "run" / "model"
    assert (fetched / "words" / "list.txt").read_text() == "dog"
