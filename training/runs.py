"""A run's folder in the lake: what a training run leaves there while it goes on, and what is read from it elsewhere.

    <lake>/runs/<run>/epochs/00003.json      metrics of epoch 3, written when it is over
    <lake>/runs/<run>/model/                 the kept model (`LinkModel.load`), written at the end
    <lake>/runs/<run>/checkpoint_.../        Ray Train's checkpoints, and its own list of them

An epoch file is how a driver hears of an epoch that ends elsewhere: it looks for new ones while it waits. That works on
any store and for any number of machines, costs no process, and what was reported outlives a killed driver.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from schemas.lake import Folder, Lake

RUNS = "runs"
EPOCHS = "epochs"
MODEL = "model"
EPOCH = "epoch"
POLL_S = 0.25

Metrics = Mapping[str, float]
OnReport = Callable[[Metrics], None]


def runs_folder(lake: Lake) -> Folder:
    """Return where the lake keeps its runs."""
    return lake.root.child(RUNS)


def record_epoch(run: Folder, metrics: Metrics) -> None:
    """Write one epoch's metrics (`epoch` among them) into a run's folder; doing it again replaces them."""
    name = f"{int(metrics[EPOCH]):05d}.json"
    run.child(EPOCHS).write(name, json.dumps(dict(metrics), sort_keys=True).encode())


@contextmanager
def following(run: Folder, on_report: OnReport | None) -> Iterator[None]:
    """Call `on_report` once for each epoch recorded in the run, old ones first, while the body runs.

    It is called from another thread, never twice at a time, and has been called for every recorded epoch when the
    body is left. What it raises is raised on leaving.
    """
    if on_report is None:
        yield
        return
    is_over = threading.Event()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="epochs") as pool:
        reports = pool.submit(_report_until, is_over, run.child(EPOCHS), on_report)
        try:
            yield
        finally:
            is_over.set()
        reports.result()


def _report_until(is_over: threading.Event, folder: Folder, on_report: OnReport) -> None:
    seen: set[str] = set()
    is_last = False
    while not is_last:
        is_last = is_over.wait(POLL_S)
        for name in folder.names():
            if name.endswith(".json") and not name.startswith(".") and name not in seen:
                seen.add(name)
                on_report(json.loads(folder.read(name)))


def store_model(run: Folder, model: Path) -> None:
    """Copy a saved model into the run's folder."""
    target = run.child(MODEL)
    for path in sorted(model.rglob("*")):
        if path.is_file():
            target.write(path.relative_to(model).as_posix(), path.read_bytes())


def fetch_model(run: Folder) -> Path:
    """Return the run's kept model as a local folder: in place on a local lake, else a temporary copy."""
    source = run.child(MODEL)
    if source.local is not None:
        return source.local
    target = Path(tempfile.mkdtemp(prefix="multilink-model-"))
    for name in source.files():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read(name))
    return target
