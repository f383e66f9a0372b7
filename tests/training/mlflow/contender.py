"""One of several processes that want to make their version the champion at once: `contender.py URI NAME VERSION`.

Each line on standard input lets it go one step: it looks who is champion, and then tries to succeed that one. After a
step it prints what came of it.
"""

import sys

from training.mlflow.champions import append, record_of
from training.mlflow.runs import connect
from training.promotions.record import CHANGED


def main(uri: str, name: str, version: str) -> None:
    client = connect(uri)
    print("ready", flush=True)
    while sys.stdin.readline():
        record = record_of(client, name)
        print("looked", flush=True)
        sys.stdin.readline()
        change = {"champions": [version, *record.champions], "decision": {"version": version}}
        is_won = append(client, record, record.model.versions[version], CHANGED, change)
        print("won" if is_won else "lost", flush=True)


main(*sys.argv[1:])
