"""Nothing that tests write must outlive this machine: no file is forced to its disk, eight milliseconds each time.

A process that is killed loses nothing by that. Databases of SQLite wait for the disk at each transaction, and a new one
of MLflow takes more than a hundred.
"""

import os
import sqlite3
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine


def _stay_in_memory(descriptor: object) -> None:
    """Do as `os.fsync` does where the disk is as fast as memory."""


@event.listens_for(Engine, "connect")
def _do_not_wait(connection: Any, record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


os.fsync = _stay_in_memory
