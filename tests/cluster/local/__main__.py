"""`make cluster`: a real cluster on this machine, until Ctrl-C.

    PYTHONPATH=tests python -m cluster.local [--home cluster] [--engine flink|spark]

It prints where everything is, and writes what a command needs in its environment to `HOME/environment`, which only its
owner may read: `. cluster/environment`, then `multilink build`, `train`, `link` as anywhere.
"""

import fcntl
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli import run
from orchestration.console import Console
from schemas.messages import UsageError

from .cluster import Cluster, running
from .deployment import TRAIN_WORKERS, web_of
from .programs import Engine

WATCH_S = 1.0
app = typer.Typer(add_completion=False)


@app.command()
def cluster(
    home: Annotated[Path, typer.Option(help="Folder to keep everything in.")] = Path("cluster"),
    engine: Annotated[Engine, typer.Option(help="What Beam's pipelines run on.")] = Engine.FLINK,
) -> None:
    """Start a cluster on this machine, and keep it running until Ctrl-C."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # a closed terminal ends everything in order, as Ctrl-C
    console, home = Console(), home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            raise UsageError(f"--home {home}: another cluster runs there") from problem
        with running(home, engine=engine, say=console.say) as cluster_:
            console.summarise([*cluster_.addresses(), "", *commands(cluster_)], {})
            while True:
                time.sleep(WATCH_S)
                cluster_.watch()


def commands(cluster_: Cluster) -> list[str]:
    """Return the commands to type next; the environment is written to a file."""
    file = cluster_.plan.home / "environment"
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in cluster_.environment.items()]
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.writelines(lines)
    web = shlex.join(part for setting in web_of(cluster_.plan) for part in ("--set", setting))
    beam = shlex.join(cluster_.beam_options)
    return [
        "in another terminal:",
        f"  . {file}    # {', '.join(cluster_.environment)}",
        f"  multilink build diy {web} --runner {cluster_.plan.engine} -- {beam}",
        f"  multilink train --dataset diy --recipe tiny --workers {TRAIN_WORKERS}",
        f"everything is kept in {cluster_.plan.home}; Ctrl-C ends it",
    ]


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], app))
