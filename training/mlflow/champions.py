"""Who is champion after whom: a log that only grows, so that two successors cannot both win and none is half done.

MLflow's aliases can be set, not compared and set. What a registry does decide in one transaction, whatever its database
and also through its server, is the number of a new model version. So a change of champion is one version of the
registered model `<name>.champions`, an entry, that says which entry it follows. It counts if that was the last one that
counted before it; of two that follow the same entry the one with the smaller number counts, and the other never will,
whoever looks and whenever (compare-and-set by replaying a totally ordered log: Schneider 1990).

    entry 1   follows 0   line 3      counts
    entry 2   follows 1   line 5 3    counts: 5 replaces 3
    entry 3   follows 1   line 4 3    came too late, never counts
    entry 4   follows 2   line 3      counts: 5 was rolled back

An entry names the registered model by the time at which that was made. Where a model was deleted and made anew, its
versions are numbered from 1 again: the entries of the old one, which stay in the log, are passed over.

The aliases `champion` and `previous_champion` are a copy of the last entry that counts, made by `settle`: before the
entry is written they are the old ones, and a process that dies right after it leaves them old until anyone settles. An
alias that was set by hand is put right then, too; before the first entry the aliases themselves are what counts.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import mlflow
from mlflow.exceptions import MlflowException

from schemas.errors import BuildError
from training.mlflow.registry import CHAMPION, LOG_SUFFIX, PREVIOUS_CHAMPION, find_model, make_name, versions

FOLLOWS, LINE, TOKEN, DECISION, MODEL = "follows", "line", "token", "decision", "model_created"
REMEMBERED = 100
ATTEMPTS = 5
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """Who is champion, and who was before.

    Attributes:
        entry: number of the entry that says so; 0: none does, the aliases do.
        line: versions, the champion's first, then those that a rollback would go back to.
        token: what the writer of the entry knows it by.
        decision: what it was decided by, as JSON; None before the first entry.
    """

    entry: int
    line: tuple[str, ...]
    token: str = ""
    decision: str | None = None

    @property
    def champion(self) -> str | None:
        return self.line[0] if self.line else None

    @property
    def previous(self) -> str | None:
        return self.line[1] if len(self.line) > 1 else None


def current(client: mlflow.MlflowClient, name: str) -> Reign:
    """Return the reign the log ends with, whatever the aliases say; versions that were deleted are passed over.

    Raises:
        NotFoundError: there is no such model.
    """
    reign = _reigns(client, name)[-1]
    known = {found.version for found in versions(client, f"name = '{name}'")} if reign.entry else set(reign.line)
    return replace(reign, line=tuple(version for version in reign.line if version in known))


def settle(client: mlflow.MlflowClient, name: str) -> Reign:
    """Make the aliases say what the log says, and return it.

    A slow process may set them to what has meanwhile passed; it looks again afterwards, and then corrects itself.

    Raises:
        NotFoundError: there is no such model.
        BuildError: the registry could not be written.
    """
    reign = current(client, name)
    while True:
        if reign.entry:
            _point(client, name, PREVIOUS_CHAMPION, reign.previous)
            _point(client, name, CHAMPION, reign.champion)
        now = current(client, name)
        if now.entry == reign.entry:
            return reign
        reign = now


def succeed(client: mlflow.MlflowClient, name: str, reign: Reign, line: tuple[str, ...], *, decision: str) -> bool:
    """Let `reign` be followed by another line; return whether it is, False where someone else came first.

    Raises:
        BuildError: the registry could not be written.
    """
    token, made = uuid.uuid4().hex, str(find_model(client, name).creation_timestamp)
    tags = {FOLLOWS: str(reign.entry), LINE: " ".join(line[:REMEMBERED]), TOKEN: token, DECISION: decision, MODEL: made}
    make_name(client, name + LOG_SUFFIX)
    # Written twice, because an answer was lost, it still counts once: the second follows what the first does.
    source = f"models:/{name}/{line[0]}"
    _insist(name, partial(client.create_model_version, name + LOG_SUFFIX, source=source, tags=tags))
    is_written = any(past.token == token for past in _reigns(client, name))
    settle(client, name)
    return is_written


def _reigns(client: mlflow.MlflowClient, name: str) -> list[Reign]:
    """Return the reigns that count, in order, from the one before the first entry."""
    model = find_model(client, name)
    first = (str(model.aliases[alias]) for alias in (CHAMPION, PREVIOUS_CHAMPION) if alias in model.aliases)
    reigns, made = [Reign(entry=0, line=tuple(first))], str(model.creation_timestamp)
    for entry in reversed(versions(client, f"name = '{name}{LOG_SUFFIX}'")):
        tags = entry.tags
        if (tags.get(MODEL), tags[FOLLOWS]) == (made, str(reigns[-1].entry)):
            line, number = tuple(tags[LINE].split()), int(entry.version)
            reigns.append(Reign(entry=number, line=line, token=tags[TOKEN], decision=tags[DECISION]))
    return reigns


def _point(client: mlflow.MlflowClient, name: str, alias: str, version: str | None) -> None:
    known = find_model(client, name).aliases.get(alias)
    if version is None and known is not None:
        _insist(name, partial(client.delete_registered_model_alias, name, alias))
    elif version is not None and str(known) != version:
        _insist(name, partial(client.set_registered_model_alias, name, alias, version))


def _insist(name: str, write: Callable[[], object]) -> None:
    """Write, again where the registry refuses: two who write the same row at the same moment disturb each other."""
    for attempt in range(ATTEMPTS):
        try:
            write()
            return
        except MlflowException as problem:
            if attempt == ATTEMPTS - 1:
                why = str(problem).splitlines()[0]
                raise BuildError(f"model '{name}': the registry could not be written: {why}") from problem
            time.sleep(PAUSE_S * 2**attempt)
