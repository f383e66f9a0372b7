from pathlib import Path

from schemas.lake import Folder
from training.loop.run import fetch_model, store_model


def test_a_stored_model_is_fetched_in_place(tmp_path: Path) -> None:
    model, run = tmp_path / "model", Folder(str(tmp_path / "run"))
    (model / "words").mkdir(parents=True)
    (model / "model.json").write_text("{}")
    (model / "words" / "list.txt").write_text("dog")
    store_model(run, model)
    fetched = fetch_model(run)
    assert fetched == tmp_path / "run" / "model"
    assert (fetched / "words" / "list.txt").read_text() == "dog"
