"""A run's folder in the lake: what a training run leaves there while it goes on, and what is read from it elsewhere.

    <lake>/runs/<run>/epochs/00003.json      metrics of epoch 3, written when it is over
    <lake>/runs/<run>/progress.txt           the last line of progress within an epoch
    <lake>/runs/<run>/start/...              copies of the registry's models that the run starts from
    <lake>/runs/<run>/model/                 the kept model (`LinkModel.load`), written at the end
    <lake>/runs/<run>/checkpoints/00003/     of a run that one process trains: its state after epoch 3, the newest
    <lake>/runs/<run>/checkpoint_.../        of a run of Ray Train: its checkpoints, and its own list of them

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
from training.loop.state import STATE
from training.model import CARD

RUNS = "runs"
EPOCHS = "epochs"
MODEL = "model"
START = "start"
CHECKPOINTS = "checkpoints"
RAYS_LIST = "checkpoint_manager_snapshot.json"  # of its checkpoints
ADDRESSES = ("models:/", "runs:/")
PROGRESS = "progress.txt"
EPOCH = "epoch"
POLL_S, REMOTE_POLL_S = 0.25, 5.0  # each look at an object store is two requests

_fetched: list[tempfile.TemporaryDirectory[str]] = []  # removed when this process ends
Metrics = Mapping[str, float]
OnReport = Callable[[Metrics], None]
OnProgress = Callable[[str], None]


def runs_folder(lake: Lake) -> Folder:
    """Return where the lake keeps its runs."""
    return lake.root.child(RUNS)


def record_epoch(run: Folder, metrics: Metrics) -> None:
    """Write one epoch's metrics (`epoch` among them) into a run's folder; doing it again replaces them."""
    name = f"{int(metrics[EPOCH]):05d}.json"
    run.child(EPOCHS).write(name, json.dumps(dict(metrics), sort_keys=True).encode())


def record_progress(run: Folder, line: str) -> None:
    """Write a line of progress into a run's folder, in place of the one before."""
    run.write(PROGRESS, line.encode())


@contextmanager
def following(run: Folder, on_report: OnReport | None, on_progress: OnProgress | None = None) -> Iterator[None]:
    """Call `on_report` once for each epoch recorded in the run, old ones first, while the body runs.

    `on_progress` is called with each new line of progress that is seen; lines may be passed over. Both are called from
    another thread, never two at a time, and `on_report` has been called for every recorded epoch when the body is left.
    What they raise is raised on leaving.
    """
    if on_report is None and on_progress is None:
        yield
        return
    is_over, line = threading.Event(), _progress(run)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="epochs") as pool:
        reports = pool.submit(_report_until, is_over, run, on_report, on_progress, line)
        try:
            yield
        finally:
            is_over.set()
        reports.result()


def _report_until(
    is_over: threading.Event, run: Folder, on_report: OnReport | None, on_progress: OnProgress | None, line: str
) -> None:
    """Tell what is new until it is over; `line` is the line of progress that is known already."""
    seen: set[str] = set()
    pause_s = REMOTE_POLL_S if run.local is None else POLL_S
    epochs, is_last = run.child(EPOCHS), False
    while not is_last:
        is_last = is_over.wait(pause_s)
        fresh = [name for name in epochs.names() if name.endswith(".json") and name[0] != "." and name not in seen]
        seen.update(fresh)
        if on_report is not None:
            for name in fresh:
                on_report(json.loads(epochs.read(name)))
        if on_progress is not None and not is_last and (new := _progress(run)) != line:
            line = new
            on_progress(line)


def _progress(run: Folder) -> str:
    return run.read(PROGRESS).decode() if run.exists(PROGRESS) else ""


def store_checkpoint(run: Folder, epoch: int, checkpoint: Path) -> None:
    """Copy an epoch's checkpoint into the run's folder; those of earlier epochs go once it is whole."""
    folder = run.child(CHECKPOINTS)
    earlier = folder.names()
    name = f"{epoch:05d}"
    _store(folder.child(name), checkpoint, last=STATE)
    for other in earlier:
        if other != name:
            folder.child(other).remove()


def fetch_checkpoint(run: Folder) -> Path | None:
    """Return the newest whole checkpoint that one process left as a local folder, or None where there is none."""
    folder = run.child(CHECKPOINTS)
    whole = [name for name in folder.names() if folder.child(name).exists(STATE)]
    return _fetch(folder.child(max(whole))) if whole else None


def is_of_ray(run: Folder) -> bool:
    """Return whether Ray Train keeps the run's checkpoints."""
    return run.exists(RAYS_LIST)


def store_model(run: Folder, model: Path) -> None:
    """Copy a saved model into the run's folder."""
    _store(run.child(MODEL), model, last=CARD)


def fetch_model(run: Folder) -> Path:
    """Return the run's kept model as a local folder: in place on a local lake, else a temporary copy."""
    return _fetch(run.child(MODEL))


def is_address(model: str) -> bool:
    """Return whether a model is named by its address in the registry or of its run, and not by a folder."""
    return model.startswith(ADDRESSES)


def store_start(run: Folder, address: str, model: Path) -> None:
    """Copy a saved model that the run starts from into the run's folder, under its address."""
    _store(_start(run, address), model, last=CARD)


def has_start(run: Folder, address: str) -> bool:
    return CARD in _start(run, address).names()


def fetch_start(run: Folder, model: str) -> Path:
    """Return a model that the run starts from as a local folder: itself, or of an address the copy that was stored."""
    return _fetch(_start(run, model)) if is_address(model) else Path(model)


def _start(run: Folder, address: str) -> Folder:
    return run.child(START, *address.partition(":/")[2].split("/"))


def _store(target: Folder, folder: Path, *, last: str) -> None:
    """Write the files of a folder, last the one that says it is whole."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: (name == last, name)):
        target.write(name, (folder / name).read_bytes())


def _fetch(source: Folder) -> Path:
    if source.local is not None:
        return source.local
    scratch = tempfile.TemporaryDirectory(prefix="multilink-model-")
    _fetched.append(scratch)
    target = Path(scratch.name)
    for name in source.files():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read(name))
    return target
