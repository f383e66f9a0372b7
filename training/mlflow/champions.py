"""Writing the record of a model's champions, and its copies in the registry.

MLflow's aliases can be set, not compared and set. So a change of champion is a statement of the model's chain
(`training.promotions.chain`) that follows the last one: of two that follow the same, one is written. A statement names
the registered model by the time at which that was made, and a version by its run and its digest: a number may be given
again.

The record is what counts (`training.promotions.record`). The aliases `champion` and `previous_champion`, and the tag
`tainted` of a version, are copies of it, made by `align`: a process that dies right after its statement leaves them old
until the next call, which also corrects an alias that was set by hand.

Training cannot be undone in part. So a version that was trained on what was taken out of a lake afterwards is named in
the record as tainted, and so is every version that was trained from it, and every version that was trained on another
version of the data set that is no longer in the lake, so that what it held is not known. Which weights a version was
trained from is a tag of it: runs are deleted on MLflow's page. For how long a tainted champion may be used until its
successor is promoted is a setting of the policy that it was promoted by (`forget_within_days`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import mlflow
from securesystemslib.signer import CryptoSigner

from schemas.errors import BuildError, UsageError
from schemas.lake import Lake
from schemas.versions import fingerprint
from training.mlflow.registry import find_version, model_names, registered, versions, write_row
from training.mlflow.runs import DATASET_TAG, LAKE_TAG, START_TAG, VERSION_TAG
from training.promotions.chain import Chain
from training.promotions.keys import own_signer, trusted_keys
from training.promotions.record import (
    ADOPTED,
    BEST,
    CHAMPION,
    CHANGED,
    COUNT_TAG,
    HOME_TAG,
    PREVIOUS_CHAMPION,
    TAINTED,
    ModelVersion,
    Record,
    Registered,
    Signatures,
    read_record,
)

REMEMBERED = 100
Json = Mapping[str, Any]


def record_of(client: mlflow.MlflowClient, name: str, lake: Lake | None = None) -> Record:
    """Return the record of a registered model, from a lake or from the one that the registry names.

    Raises:
        NotFoundError: there is no such model.
        IntegrityError: as `read_record` says.
    """
    return read_record(registered(client, name), lake)


def align(client: mlflow.MlflowClient, name: str) -> Record:
    """Set aliases and taints by the record, and return it; where its champion is not there, no alias is touched.

    A slow process may set them by a record that another has followed meanwhile; so it reads it again afterwards, and
    then corrects itself.

    Raises:
        NotFoundError: there is no such model.
        BuildError: the registry could not be written.
        IntegrityError: as `read_record` says.
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
    record: Record,
    champions: Sequence[str],
    *,
    decision: Json,
    evidence: Json | None = None,
    lake: Lake | None = None,
) -> bool:
    """State another champion; return False where another process changed it since the record was read.

    Args:
        client: of the registry.
        record: that this change is to follow.
        champions: versions, the new champion first.
        decision: that it is made by.
        evidence: what else the statement says.
        lake: as `append` takes it; raises as that does.
    """
    predicate = {"champions": list(champions[:REMEMBERED]), "decision": dict(decision), **(evidence or {})}
    version = find_version(client, record.model.name, champions[0])
    return append(client, version, CHANGED, predicate, follows=record.token, lake=lake)


def append(
    client: mlflow.MlflowClient,
    version: ModelVersion,
    event: str,
    predicate: Json,
    *,
    follows: str | None = None,
    lake: Lake | None = None,
) -> bool:
    """Add a statement about a version, and align the registry; return whether it was written.

    Args:
        client: of the registry.
        version: that it is about.
        event: kind of statement.
        predicate: what it says.
        follows: token of the change of champion that must still be the last; None: whichever is.
        lake: where the chain begins, if this is its first statement; None: the lake that the version was trained from.

    Raises:
        BuildError: the registry could not be written.
        UsageError: it is not known in which lake the chain is to begin, or this machine has no trusted key for it.
        IntegrityError: as `read_record` says.
    """
    record, is_written = _opened(client, version, lake), False
    digest = version.digest
    subject = [{"name": version.uri, "digest": {"sha256": digest or fingerprint([version.name, version.version])}}]
    about = {"version": version.version, "run": version.run_id or "", "digest": digest}
    while not is_written and follows in (None, record.token):
        is_written = _write(record, event, subject, about, predicate)
        record = record_of(client, version.name)
    _follow(client, version.name, is_written=is_written)
    return is_written


def adopt(client: mlflow.MlflowClient, name: str) -> Record:
    """Take over all that the chain of a registered model says so far, with the key of this machine; return its record.

    What is unsigned, signed by a key that is not trusted any more, or about the model's name before, counts from then
    on as said by who adopts it. The champion, those before it and the best one are those that are still there.

    Raises:
        UsageError: there is nothing to adopt.
        IntegrityError: the chain is damaged, or lacks statements.
    """
    before = read_record(registered(client, name), is_adopting=True)
    if not before.chain:
        raise UsageError(f"model '{name}': there is no record of promotions yet")
    there, last = [version for version in before.champions if before.is_there(version)], before.chain[-1]
    best = before.best if before.best and before.is_there(before.best) else next(iter(there), None)
    subject = [{"name": last.where, "digest": {"sha256": last.digest}}]
    _write(before, ADOPTED, subject, {}, {"champions": there, BEST: best})
    _follow(client, before.model.name, is_written=True)
    return record_of(client, before.model.name)


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
        for version in versions(client, name=name, **{LAKE_TAG: was.root.uri}):
            write_row(name, partial(client.set_model_version_tag, name, version.version, LAKE_TAG, new.root.uri))
            changed += 1
    if not changed:
        raise UsageError(f"--from {old}: no model of {client.tracking_uri} names this lake; nothing was changed")
    return changed


def _write(record: Record, event: str, subject: Sequence[Json], about: Json, predicate: Json) -> bool:
    """Add a statement to a chain; return False where another process was faster; raises as `check_signer`."""
    assert record.home is not None
    signer = check_signer(record)
    model = {"name": record.model.name, "created": record.model.created, **about}
    last = record.chain[-1] if record.chain else None
    return Chain(record.home).append(last, subject, {**predicate, "event": event, "model": model}, signer)


def check_signer(record: Record) -> CryptoSigner | None:
    """Return what signs a statement that follows a record; None: neither it nor the record is signed.

    Raises:
        UsageError: the statement would be refused by those who read it here: its key is not trusted, or there is none.
    """
    signer, trusted = own_signer(), {key.keyid for key in trusted_keys()}
    if signer is None and (trusted or record.signatures is not Signatures.NONE):
        raise UsageError(
            f"statements on '{record.model.name}' are signed, and this machine has no key to sign with: make one with "
            "multilink key, or name it as key in multilink.toml"
        )
    if signer is not None and signer.public_key.keyid not in trusted:
        raise UsageError(f"the key {signer.public_key.keyid[:12]} of this machine is not among those that are trusted")
    return signer


def _follow(client: mlflow.MlflowClient, name: str, *, is_written: bool) -> None:
    """Align the registry after a statement; an error says whether that is written."""
    try:
        align(client, name)
    except BuildError as problem:
        if is_written:
            raise type(problem)(
                f"{problem}; the statement itself is written, and the next command follows it"
            ) from problem
        raise


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
    """Let aliases and taints in the registry be those of the record."""
    model = record.model
    if record.changes and (record.champion is None or record.is_there(record.champion)):
        before = [each for each in record.champions[1:2] if record.is_there(each)]
        _set_alias(client, model, PREVIOUS_CHAMPION, next(iter(before), None))
        _set_alias(client, model, CHAMPION, record.champion)
    for number, version in model.versions.items():
        taint = record.taint(number)
        if taint is not None and TAINTED not in version.tags:
            value = json.dumps(asdict(taint), sort_keys=True)
            write_row(model.name, partial(client.set_model_version_tag, model.name, number, TAINTED, value))
    if len(record.chain) > int(model.tags.get(COUNT_TAG, 0)):
        count = str(len(record.chain))
        write_row(model.name, partial(client.set_registered_model_tag, model.name, COUNT_TAG, count))


def _set_alias(client: mlflow.MlflowClient, model: Registered, alias: str, version: str | None) -> None:
    """Let an alias name a version, or none."""
    known = model.aliases.get(alias)
    if version is None and known is not None:
        write_row(model.name, partial(client.delete_registered_model_alias, model.name, alias))
    elif version is not None and known != version:
        write_row(model.name, partial(client.set_registered_model_alias, model.name, alias, version))


def taint(
    client: mlflow.MlflowClient, lake: Lake, dataset: str, version: str, *, documents: int, images: int
) -> list[ModelVersion]:
    """Let every version that depends on a data set version be tainted; return those versions.

    Args:
        client: of the registry.
        lake: that the data set is in; the chains of models that have none yet begin there.
        dataset: name.
        version: of the data set.
        documents: how many are taken out of it.
        images: how many are taken out of it.
    """
    found = _dependent(client, lake, dataset, version)
    went = {"dataset": f"{dataset}@{version}", "documents": documents, "images": images}
    for model, why in found:
        stated = {each.predicate["dataset"] for each in record_of(client, model.name).about(model.version, TAINTED)}
        if went["dataset"] not in stated:
            append(client, model, TAINTED, {**went, "why": why}, lake=lake)
    return [model for model, _ in found]


def _dependent(
    client: mlflow.MlflowClient, lake: Lake, dataset: str, version: str
) -> Sequence[tuple[ModelVersion, str]]:
    """Return each version that depends on a data set version, and in which way ("": it was trained on it)."""
    there, everything = lake.versions(dataset), versions(client)
    of_dataset = [each for each in everything if each.tags.get(DATASET_TAG) == dataset]
    waiting = [(each, "") for each in of_dataset if each.tags.get(VERSION_TAG) == version]
    waiting += [
        (each, f"trained on {dataset}@{each.tags.get(VERSION_TAG)}, which is not in the lake any more")
        for each in of_dataset
        if each.tags.get(LAKE_TAG) == lake.root.uri and each.tags.get(VERSION_TAG) not in there
    ]
    found: dict[str, tuple[ModelVersion, str]] = {}
    while waiting:
        model, why = waiting.pop(0)
        if model.uri not in found:
            found[model.uri] = model, why
            waiting += [(each, f"trained from {model.uri}") for each in everything if _starts_from(each, model)]
    return list(found.values())


def _starts_from(child: ModelVersion, parent: ModelVersion) -> bool:
    run = f"|{parent.run_id}" if parent.run_id else ""
    return re.search(f"(?:{re.escape(parent.uri)}{run})(?![0-9a-f])", child.tags.get(START_TAG, "")) is not None
