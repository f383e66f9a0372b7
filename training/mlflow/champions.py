"""Who is champion after whom: statements in the lake that only grow, so that two successors cannot both win.

MLflow's aliases can be set, not compared and set. So a change of champion is a statement of the model's chain
(`training.promotions.chain`) that follows the last one: of two that follow the same, one is written. A statement names
the registered model by the time at which that was made. Where a model was deleted and made anew, its versions are
numbered from 1 again: statements about the old one stay, and are passed over.

Which folder the chain lies in is a tag of the registered model, set by the first statement, and another says how many
statements there are: a folder with fewer is another lake, or has lost some.

The aliases `champion` and `previous_champion` are a copy of the last change, made by `align_aliases`: before the
statement is written they are the old ones, and a process that dies right after it leaves them old until the next call.
An alias that was set by hand is corrected then, too; before the first statement the aliases themselves are what counts.

Earlier releases kept this log in the registry, as versions of the model `<name>.champions`. The first statement takes
it over, as a whole.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import mlflow
from mlflow.entities.model_registry import RegisteredModel
from mlflow.exceptions import MlflowException

from schemas.errors import BuildError, IntegrityError, UsageError
from schemas.lake import Folder, Lake
from schemas.versions import fingerprint
from training.mlflow.registry import (
    CHAMPION,
    LOG_SUFFIX,
    MODEL_DIGEST_TAG,
    PREVIOUS_CHAMPION,
    ModelVersion,
    find_model,
    find_version,
    versions,
)
from training.mlflow.runs import LAKE_TAG
from training.promotions.chain import Chain, Statement
from training.promotions.keys import own_signer

HOME_TAG, COUNT_TAG = "promotions", "promotions_count"
FOLLOWS, LINE, TOKEN, DECISION, MODEL = "follows", "line", "token", "decision", "model_created"  # of an earlier log
REMEMBERED = 100
ATTEMPTS = 5
PAUSE_S = 0.05
BEST, BEST_BEFORE = "best", "best_before"  # of a decision
TAKEN_OVER, CHANGED = "taken over", "champion"  # events


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionEntry:
    """An entry of the log of champions.

    Attributes:
        number: of the entry; 0: there is none yet, and the aliases are what counts.
        champions: versions, the champion's first, then those that a rollback would go back to.
        token: by which its writer recognises it.
        decision: that it was made by, as JSON; None before the first entry.
        since_ms: when the entry was written, milliseconds since 1970 by the writer's clock; 0 before the first.
        signed_by: ids of the keys that claim to have signed it.
    """

    number: int
    champions: tuple[str, ...]
    token: str = ""
    decision: str | None = None
    since_ms: int = 0
    signed_by: tuple[str, ...] = ()

    @property
    def champion(self) -> str | None:
        return self.champions[0] if self.champions else None

    @property
    def previous(self) -> str | None:
        return self.champions[1] if len(self.champions) > 1 else None


def last_entry(client: mlflow.MlflowClient, name: str) -> ChampionEntry:
    """Return the last change of champion, whatever the aliases are; versions that were deleted are passed over.

    Raises:
        NotFoundError: there is no such model.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    name = find_model(client, name).name
    entry = champion_log(client, name)[-1]
    there = {found.version for found in versions(client, f"name = '{name}'")} if entry.number else set(entry.champions)
    return replace(entry, champions=tuple(version for version in entry.champions if version in there))


def align_aliases(client: mlflow.MlflowClient, name: str) -> ChampionEntry:
    """Set the aliases by the last change of champion, and return it.

    A slow process may set them to an entry that another has followed meanwhile; so it reads the log again afterwards,
    and then corrects itself.

    Raises:
        NotFoundError: there is no such model.
        BuildError: the registry could not be written.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    entry, name = last_entry(client, name), find_model(client, name).name
    while True:
        if entry.number:
            _set_alias(client, name, PREVIOUS_CHAMPION, entry.previous)
            _set_alias(client, name, CHAMPION, entry.champion)
        latest = last_entry(client, name)
        if latest.token == entry.token:
            _count(client, name)
            return entry
        entry = latest


def append_entry(
    client: mlflow.MlflowClient,
    name: str,
    last: ChampionEntry,
    champions: tuple[str, ...],
    *,
    decision: str,
    evidence: Mapping[str, Any] | None = None,
    lake: Lake | None = None,
) -> bool:
    """Follow the entry `last` by one with other champions; return False where another process followed it first.

    Args:
        client: of the registry.
        name: registered model.
        last: the entry that the change is to follow.
        champions: versions, the new champion first.
        decision: that it is made by, as JSON.
        evidence: what else the statement says.
        lake: where the chain begins, if this is its first statement; None: the lake that the champion was trained from.

    Raises:
        BuildError: the registry could not be written.
        UsageError: it is not known in which lake the chain is to begin.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    token, new = uuid.uuid4().hex, find_version(client, name, champions[0])
    says = {"champions": list(champions[:REMEMBERED]), "token": token, "decision": json.loads(decision)}
    is_written, said = False, _opened(client, new, lake)
    while not is_written and _log(client, find_model(client, new.name), said)[-1].token == last.token:
        is_written = _append(client, new, {"event": CHANGED, **says, **(evidence or {})}, said)
        said = statements(client, new.name)
    align_aliases(client, new.name)
    return is_written


def append_statement(
    client: mlflow.MlflowClient, version: ModelVersion, event: str, says: Mapping[str, Any], lake: Lake | None = None
) -> None:
    """Add a statement about a version that changes no champion; raises as `append_entry` does."""
    said = _opened(client, version, lake)
    while not _append(client, version, {"event": event, **says}, said):
        said = statements(client, version.name)
    _count(client, version.name)


def statements(client: mlflow.MlflowClient, name: str, lake: Lake | None = None) -> list[Statement]:
    """Return the statements about a registered model, the first one first; those about an earlier one of its name, too.

    They are those of a lake, or of the one that the registry names.

    Raises:
        NotFoundError: there is no such model.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    model = find_model(client, name)
    if HOME_TAG not in model.tags:
        return []
    home = Folder(model.tags[HOME_TAG]) if lake is None else lake.promotions(model.name)
    found, least = Chain(home).statements(), int(model.tags.get(COUNT_TAG, 0))
    if len(found) < least:
        raise IntegrityError(f"{home.uri}: expected at least {least} statements, found {len(found)}")
    return found


def is_about(statement: Statement, model: RegisteredModel) -> bool:
    """Return whether a statement is about this registered model, and not about an earlier one of its name."""
    return bool(statement.predicate["model"]["created"] == str(model.creation_timestamp))


def champion_log(client: mlflow.MlflowClient, name: str) -> list[ChampionEntry]:
    """Return the changes of champion, in order; before them one with the aliases, which count where there is no other.

    Raises:
        NotFoundError: there is no such model.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    model = find_model(client, name)
    return _log(client, model, statements(client, model.name))


def _log(client: mlflow.MlflowClient, model: RegisteredModel, chain: Sequence[Statement]) -> list[ChampionEntry]:
    """Return what `champion_log` does, by the statements that were read."""
    aliases = tuple(str(model.aliases[alias]) for alias in (CHAMPION, PREVIOUS_CHAMPION) if alias in model.aliases)
    said = [each for each in chain if is_about(each, model)]
    changes = [entry for each in said for entry in _entries(each)] if said else _registry_log(client, model)
    return [ChampionEntry(number=0, champions=aliases), *changes]


def _entries(statement: Statement) -> list[ChampionEntry]:
    says = statement.predicate
    if says["event"] == TAKEN_OVER:
        shown = {"signed_by": statement.signed_by}
        return [ChampionEntry(**{**each, **shown, "champions": tuple(each["champions"])}) for each in says["entries"]]
    at = datetime.fromisoformat(says["at"])
    entry = ChampionEntry(
        number=statement.number,
        champions=tuple(says.get("champions", ())),
        token=says.get("token", ""),
        decision=json.dumps(says.get("decision"), sort_keys=True),
        since_ms=round(1000 * at.timestamp()),
        signed_by=statement.signed_by,
    )
    return [entry] if says["event"] == CHANGED else []


def _registry_log(client: mlflow.MlflowClient, model: RegisteredModel) -> list[ChampionEntry]:
    """Return the entries of an earlier release's log that count: each follows the last one that counted before it."""
    found, made = [ChampionEntry(number=0, champions=())], str(model.creation_timestamp)
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
    return found[1:]


def _append(
    client: mlflow.MlflowClient, version: ModelVersion, says: Mapping[str, Any], said: Sequence[Statement]
) -> bool:
    """Add a statement after those that were read; return False where it must be tried again after others.

    Another process may have added one, or this one has taken over an earlier log.
    """
    model, last = find_model(client, version.name), said[-1] if said else None
    chain = Chain(Folder(model.tags[HOME_TAG]))
    about = {"name": model.name, "created": str(model.creation_timestamp)}
    earlier = [] if any(is_about(each, model) for each in said) else _registry_log(client, model)
    if earlier:
        entries = [{**asdict(entry), "champions": list(entry.champions)} for entry in earlier]
        taken_over = {"event": TAKEN_OVER, "model": about, "entries": entries}
        chain.append(last, _subject(version), taken_over, own_signer())
        return False
    about |= {"version": version.version, "run": version.run_id or "", "digest": version.tags.get(MODEL_DIGEST_TAG, "")}
    return chain.append(last, _subject(version), {**says, "model": about}, own_signer())


def _subject(version: ModelVersion) -> Sequence[Mapping[str, Any]]:
    digest = version.tags.get(MODEL_DIGEST_TAG) or fingerprint([version.name, version.version])
    return [{"name": version.uri, "digest": {"sha256": digest}}]


def _opened(client: mlflow.MlflowClient, version: ModelVersion, lake: Lake | None) -> list[Statement]:
    """Return the statements; where there is no chain yet, let it have a folder, or that of who is faster."""
    if HOME_TAG not in find_model(client, version.name).tags:
        if lake is None and LAKE_TAG not in version.tags:
            raise UsageError(f"{version.uri}: expected a tag with the lake of its data set, found none; give --lake")
        folder = (lake or Lake.at(version.tags[LAKE_TAG])).promotions(version.name)
        _write(version.name, partial(client.set_registered_model_tag, version.name, HOME_TAG, folder.uri))
    return statements(client, version.name)


def _count(client: mlflow.MlflowClient, name: str) -> None:
    """Note how many statements there are at least."""
    known, count = int(find_model(client, name).tags.get(COUNT_TAG, 0)), len(statements(client, name))
    if count > known:
        _write(name, partial(client.set_registered_model_tag, name, COUNT_TAG, str(count)))


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
