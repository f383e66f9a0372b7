"""Who is champion after whom: a log that only grows, in the registry, so that two successors cannot both win.

None is half done. MLflow's aliases can be set, not compared and set. What a registry does decide in one transaction,
whatever its database and also through its server, is the number of a new model version. So a change of champion is one
version of the registered model `<name>.champions`, an entry, that names the entry it follows. It counts if that was the
last one that counted before it; of two that follow the same entry the one with the smaller number counts, and the other
never will, whichever process reads it and whenever (compare-and-set by replaying a totally ordered log: Schneider
1990).

    entry 1   follows 0   line 3      counts
    entry 2   follows 1   line 5 3    counts: 5 replaces 3
    entry 3   follows 1   line 4 3    came too late, never counts
    entry 4   follows 2   line 3      counts: 5 was rolled back

An entry names the registered model by the time at which that was made. Where a model was deleted and made anew, its
versions are numbered from 1 again: the entries of the old one, which stay in the log, are passed over.

The aliases `champion` and `previous_champion` are a copy of the last entry that counts, made by `align_aliases`: before
the entry is written they are the old ones, and a process that dies right after it leaves them old until the next call.
An alias that was set by hand is corrected then, too; before the first entry the aliases themselves are what counts.
"""

import json
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
BEST, BEST_BEFORE = "best", "best_before"  # of a decision


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionEntry:
    """An entry of the log of champions.

    Attributes:
        number: of the entry; 0: there is none yet, and the aliases are what counts.
        champions: versions, the champion's first, then those that a rollback would go back to.
        token: by which its writer recognises it.
        decision: that it was made by, as JSON; None before the first entry.
        since_ms: when the entry was written, milliseconds since 1970 by the registry's clock; 0 before the first.
    """

    number: int
    champions: tuple[str, ...]
    token: str = ""
    decision: str | None = None
    since_ms: int = 0

    @property
    def champion(self) -> str | None:
        return self.champions[0] if self.champions else None

    @property
    def previous(self) -> str | None:
        return self.champions[1] if len(self.champions) > 1 else None


def last_entry(client: mlflow.MlflowClient, name: str) -> ChampionEntry:
    """Return the entry the log ends with, whatever the aliases are; versions that were deleted are passed over.

    Raises:
        NotFoundError: there is no such model.
    """
    name = find_model(client, name).name
    entry = champion_log(client, name)[-1]
    there = {found.version for found in versions(client, f"name = '{name}'")} if entry.number else set(entry.champions)
    return replace(entry, champions=tuple(version for version in entry.champions if version in there))


def align_aliases(client: mlflow.MlflowClient, name: str) -> ChampionEntry:
    """Set the aliases by the last entry of the log, and return that entry.

    A slow process may set them to an entry that another has followed meanwhile; so it reads the log again afterwards,
    and then corrects itself.

    Raises:
        NotFoundError: there is no such model.
        BuildError: the registry could not be written.
    """
    entry, name = last_entry(client, name), find_model(client, name).name
    while True:
        if entry.number:
            _set_alias(client, name, PREVIOUS_CHAMPION, entry.previous)
            _set_alias(client, name, CHAMPION, entry.champion)
        latest = last_entry(client, name)
        if latest.number == entry.number:
            return entry
        entry = latest


def append_entry(
    client: mlflow.MlflowClient, name: str, last: ChampionEntry, champions: tuple[str, ...], *, decision: str
) -> bool:
    """Follow the entry `last` by one with other champions; return False where another process followed it first.

    Raises:
        BuildError: the registry could not be written.
    """
    model, token = find_model(client, name), uuid.uuid4().hex
    made, line = str(model.creation_timestamp), " ".join(champions[:REMEMBERED])
    tags = {FOLLOWS: str(last.number), LINE: line, TOKEN: token, DECISION: decision, MODEL: made}
    log, source = model.name + LOG_SUFFIX, f"models:/{model.name}/{champions[0]}"
    make_name(client, log)
    # An entry that is written twice, because the answer to the first was lost, counts once: both follow the same one.
    _write(model.name, partial(client.create_model_version, log, source=source, tags=tags))
    is_written = any(entry.token == token for entry in champion_log(client, model.name))
    align_aliases(client, model.name)
    return is_written


def champion_log(client: mlflow.MlflowClient, name: str) -> list[ChampionEntry]:
    """Return the entries that count, in order; before them one with the aliases, which count where there is no other.

    Raises:
        NotFoundError: there is no such model.
    """
    model = find_model(client, name)
    first = (str(model.aliases[alias]) for alias in (CHAMPION, PREVIOUS_CHAMPION) if alias in model.aliases)
    found, made = [ChampionEntry(number=0, champions=tuple(first))], str(model.creation_timestamp)
    for stored in reversed(versions(client, f"name = '{model.name}{LOG_SUFFIX}'")):
        tags = stored.tags
        if (tags.get(MODEL), tags[FOLLOWS]) == (made, str(found[-1].number)):
            entry = ChampionEntry(
                number=int(stored.version),
                champions=tuple(tags[LINE].split()),
                token=tags[TOKEN],
                decision=tags[DECISION],
                since_ms=stored.made_at_ms,
            )
            found.append(entry)
    return found


def _set_alias(client: mlflow.MlflowClient, name: str, alias: str, version: str | None) -> None:
    """Let an alias name a version, or none."""
    known = find_model(client, name).aliases.get(alias)
    if version is None and known is not None:
        _write(name, partial(client.delete_registered_model_alias, name, alias))
    elif version is not None and str(known) != version:
        _write(name, partial(client.set_registered_model_alias, name, alias, version))


def _write(name: str, write: Callable[[], object]) -> None:
    """Write, again where the registry refuses: two processes that write one row at once disturb each other."""
    for attempt in range(ATTEMPTS):
        try:
            write()
            return
        except MlflowException as problem:
            if attempt == ATTEMPTS - 1:
                why = str(problem).splitlines()[0]
                raise BuildError(f"model '{name}': the registry could not be written: {why}") from problem
            time.sleep(PAUSE_S * 2**attempt)


def best_champion(client: mlflow.MlflowClient, name: str, entry: ChampionEntry) -> str | None:
    """Return the version that was the best champion when the log's last decision was made, if it is there still.

    Where no decision names one, it is the champion.
    """
    there = {found.version for found in versions(client, f"name = '{name}'")}
    for earlier in reversed(champion_log(client, name)):
        found = json.loads(earlier.decision or "{}").get(BEST)
        if found in there:
            return str(found)
    return entry.champion
