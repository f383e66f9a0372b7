"""An MLflow store at one address, opened once; each test gets it as it was, with the versions that others registered.

MLflow opens an address for half a second of a processor and registers a version for as long. So a test process has one
store, whose content is put back, and what was registered first in it is kept for the next test that begins alike.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow

from schemas.lake import Lake
from training.mlflow.champions import append
from training.mlflow.runs import connect
from training.promotions.record import CHANGED, Record

DATABASE = "mlflow.db"
Register = Callable[[Path], str]  # registers the model of a folder; the version is returned


def aliases_of(client: mlflow.MlflowClient, name: str = "linker") -> dict[str, str]:
    return {alias: str(version) for alias, version in client.get_registered_model(name).aliases.items()}


def change_champion(
    client: mlflow.MlflowClient, record: Record, champions: Sequence[str], lake: Lake | None = None, **stated: Any
) -> bool:
    """State another champion of a record; return whether nobody was faster."""
    version = record.model.versions[champions[0]]
    return append(client, record, version, CHANGED, {"champions": list(champions), **stated}, lake=lake)


@dataclass
class Registry:
    """A folder with a database of MLflow and what else its tests keep there.

    Attributes:
        folder: of the database.
        kept: for copies of it.
        template: an empty database.
    """

    folder: Path
    kept: Path
    template: Path
    saved: dict[tuple[str, ...], Path] = field(default_factory=dict)
    steps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.template, self.folder / DATABASE)
        self.client = connect(self.uri)
        self.database = sqlite3.connect(self.folder / DATABASE)
        self.save(())

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/{DATABASE}"

    def reset(self, steps: tuple[str, ...] = ()) -> mlflow.MlflowClient:
        """Put back what was there after some steps, and forget what this machine saw since; return a client."""
        shutil.rmtree(Path(os.environ["XDG_STATE_HOME"], "multilink", "promotions"), ignore_errors=True)
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif not path.name.startswith(DATABASE):
                path.unlink()
        with sqlite3.connect(self.saved[steps] / DATABASE) as source:
            source.backup(self.database)
        source.close()
        shutil.copytree(
            self.saved[steps], self.folder, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(DATABASE)
        )
        self.steps, self.looked = steps, self._look()
        return connect(self.uri)

    def save(self, steps: tuple[str, ...]) -> None:
        """Keep what is there, as what some steps lead to."""
        self.saved[steps] = self.kept / str(len(self.saved))
        shutil.copytree(self.folder, self.saved[steps], symlinks=True)
        self.steps, self.looked = steps, self._look()

    def after(self, step: str, do: Callable[[], object]) -> None:
        """Do a step; where nothing but kept steps came before it, its outcome is kept for the next time."""
        if self.looked != self._look():  # something else has changed the database
            do()
            return
        steps = (*self.steps, step)
        if steps in self.saved:
            self.reset(steps)
        else:
            do()
            self.save(steps)

    def _look(self) -> int:
        return int(self.database.execute("PRAGMA data_version").fetchone()[0])
