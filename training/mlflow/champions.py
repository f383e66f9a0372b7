"""Writing the record of a model's champions, and its copies in the registry.

MLflow's aliases can be set, not compared and set. So a change of champion is a statement of the model's chain
(`training.promotions.chain`) that follows the last one: of two that follow the same, one is written. A statement names
the registered model by the time at which that was made. Where a model was deleted and made anew, its versions are
numbered from 1 again: statements about the old one stay, and are passed over.

The record is what counts (`training.promotions.record`). The aliases `champion` and `previous_champion`, and the tags
with a version's last decision, approval and taint, are copies of it, made by `align`: a process that dies right after
its statement leaves them old until the next call. An alias that was set by hand is corrected then, too; before the
first change of champion the aliases themselves are what counts.

Earlier releases kept a log of champions in the registry. The first statement takes it over, as a whole.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import mlflow

from schemas.errors import UsageError
from schemas.lake import Folder, Lake
from schemas.versions import fingerprint
from training.mlflow.registry import ModelVersion, find_version, model_names, registered, versions, write_row
from training.mlflow.runs import LAKE_TAG
from training.promotions.chain import Chain
from training.promotions.keys import own_signer
from training.promotions.record import (
    APPROVED_TAG,
    CHAMPION,
    CHANGED,
    COUNT_TAG,
    DECISION_TAG,
    HOME_TAG,
    MODEL_DIGEST_TAG,
    PREVIOUS_CHAMPION,
    TAINTED,
    TAKEN_OVER,
    Change,
    Record,
    read_record,
)

REMEMBERED = 100


def record_of(client: mlflow.MlflowClient, name: str, lake: Lake | None = None) -> Record:
    """Return the record of a registered model, from a lake or from the one that the registry names.

    Raises:
        NotFoundError: there is no such model.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    return read_record(registered(client, name), lake)


def align(client: mlflow.MlflowClient, name: str) -> Record:
    """Set aliases and tags by the record, and return it.

    A slow process may set them by a record that another has followed meanwhile; so it reads it again afterwards, and
    then corrects itself.

    Raises:
        NotFoundError: there is no such model.
        BuildError: the registry could not be written.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    record = record_of(client, name)
    while True:
        _copy(client, record)
        latest = record_of(client, name)
        if len(latest.chain) == len(record.chain):
            return latest
        record = latest


def change_champion(
    client: mlflow.MlflowClient,
    name: str,
    follows: Change,
    champions: tuple[str, ...],
    *,
    decision: Mapping[str, Any],
    evidence: Mapping[str, Any] | None = None,
    lake: Lake | None = None,
) -> bool:
    """State another champion; return False where another process changed it first.

    Args:
        client: of the registry.
        name: registered model.
        follows: the change that this one is to follow.
        champions: versions, the new champion first.
        decision: that it is made by.
        evidence: what else the statement says.
        lake: as `append` takes it; raises as that does.
    """
    predicate = {"champions": list(champions[:REMEMBERED]), "decision": dict(decision), **(evidence or {})}
    return append(client, find_version(client, name, champions[0]), CHANGED, predicate, follows=follows, lake=lake)


def append(
    client: mlflow.MlflowClient,
    version: ModelVersion,
    event: str,
    predicate: Mapping[str, Any],
    *,
    follows: Change | None = None,
    lake: Lake | None = None,
) -> bool:
    """Add a statement about a version, and align the registry; return whether it was written.

    Args:
        client: of the registry.
        version: that it is about.
        event: kind of statement.
        predicate: what it says.
        follows: the change of champion that must still be the last; None: whichever is.
        lake: where the chain begins, if this is its first statement; None: the lake that the version was trained from.

    Raises:
        BuildError: the registry could not be written.
        UsageError: it is not known in which lake the chain is to begin.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    record, signer, is_written = _opened(client, version, lake), own_signer(), False
    about = {"name": record.model.name, "created": record.model.created}
    while not is_written and (follows is None or record.changes[-1].token == follows.token):
        chain, last = Chain(Folder(record.model.tags[HOME_TAG])), record.chain[-1] if record.chain else None
        digest = version.tags.get(MODEL_DIGEST_TAG, "")
        subject = [{"name": version.uri, "digest": {"sha256": digest or fingerprint([version.name, version.version])}}]
        if record.model.log and not record.statements:
            chain.append(last, subject, {"event": TAKEN_OVER, "model": about, "entries": record.model.log}, signer)
        else:
            model = about | {"version": version.version, "run": version.run_id or "", "digest": digest}
            is_written = chain.append(last, subject, {**predicate, "event": event, "model": model}, signer)
        record = record_of(client, version.name)
    align(client, version.name)
    return is_written


def relocate_lake(client: mlflow.MlflowClient, old: str, new: Lake) -> int:
    """Let the registry name a lake that was moved by its new address; return how many tags were changed.

    Args:
        client: of the registry.
        old: path or URI that the lake had.
        new: the lake where it is now.

    Raises:
        UsageError: nothing names the old address.
        IntegrityError: the new address lacks statements of a model's record.
    """
    was, changed = Lake.at(old), 0
    for name in model_names(client):
        model = registered(client, name)
        if model.tags.get(HOME_TAG) == was.promotions(name).uri:
            read_record(model, new)  # is it whole?
            write_row(name, partial(client.set_registered_model_tag, name, HOME_TAG, new.promotions(name).uri))
            changed += 1
        for version in versions(client, f"name = '{name}' and tags.{LAKE_TAG} = '{was.root.uri}'"):
            write_row(name, partial(client.set_model_version_tag, name, version.version, LAKE_TAG, new.root.uri))
            changed += 1
    if not changed:
        raise UsageError(f"--from {old}: no model of {client.tracking_uri} names this lake; nothing was changed")
    return changed


def _opened(client: mlflow.MlflowClient, version: ModelVersion, lake: Lake | None) -> Record:
    """Return the record; where there is no chain yet, let it have a folder, or that of who is faster."""
    record = record_of(client, version.name)
    if record.home is not None:
        return record
    if lake is None and LAKE_TAG not in version.tags:
        raise UsageError(f"{version.uri}: expected a tag with the lake of its data set, found none; give --lake")
    folder = (lake or Lake.at(version.tags[LAKE_TAG])).promotions(version.name)
    write_row(version.name, partial(client.set_registered_model_tag, version.name, HOME_TAG, folder.uri))
    return record_of(client, version.name)


def _copy(client: mlflow.MlflowClient, record: Record) -> None:
    """Let aliases and tags of the registry be those of the record."""
    model, change = record.model, record.current
    if change.token:
        _set_alias(client, record, PREVIOUS_CHAMPION, change.previous)
        _set_alias(client, record, CHAMPION, change.champion)
    for number, tags in model.versions.items():
        for tag, value in _tags(record, number):
            if tags.get(tag) != value:
                if tag == DECISION_TAG:  # as a file of the run first, so that the tag is there only where both are
                    run_id = find_version(client, model.name, number).run_id
                    if run_id is not None:
                        client.log_text(run_id, value + "\n", f"promotion/{model.name}-{number}.json")
                write_row(model.name, partial(client.set_model_version_tag, model.name, number, tag, value))
    if len(record.chain) > int(model.tags.get(COUNT_TAG, 0)):
        count = str(len(record.chain))
        write_row(model.name, partial(client.set_registered_model_tag, model.name, COUNT_TAG, count))


def _tags(record: Record, number: str) -> Iterator[tuple[str, str]]:
    """Yield what the tags of a version must be, as far as the record says something of it."""
    judgement, taint = record.judgement(number), record.taint(number)
    approvals = record.approvals(number, record.model.versions[number].get(MODEL_DIGEST_TAG, ""))
    if judgement is not None:
        yield DECISION_TAG, json.dumps(judgement, sort_keys=True)
    if approvals:
        yield APPROVED_TAG, ", ".join(each.by for each in approvals)
    if taint is not None:
        yield TAINTED, json.dumps(asdict(taint), sort_keys=True)


def _set_alias(client: mlflow.MlflowClient, record: Record, alias: str, version: str | None) -> None:
    """Let an alias name a version, or none."""
    name, known = record.model.name, record.model.aliases.get(alias)
    if version is None and known is not None:
        write_row(name, partial(client.delete_registered_model_alias, name, alias))
    elif version is not None and known != version:
        write_row(name, partial(client.set_registered_model_alias, name, alias, version))
