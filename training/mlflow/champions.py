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
successor is promoted is a setting of the policy that it was promoted by (`forget_within_days`). What is trained from
tainted weights later is refused, and tainted where it was registered all the same (`training.mlflow.tracked_training`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import mlflow
from securesystemslib.signer import CryptoSigner

from schemas.lake import Lake
from schemas.messages import UsageError
from schemas.versions import fingerprint
from training.mlflow.registry import model_names, registered, versions, write_row
from training.mlflow.runs import START_TAG
from training.promotions.chain import Chain
from training.promotions.keys import own_signer, trusted_keys
from training.promotions.record import (
    ADOPTED,
    BEST,
    CHAMPION,
    CHANGED,
    COUNT_TAG,
    HOME_TAG,
    LAKE_TAG,
    PREVIOUS_CHAMPION,
    TAINTED,
    ModelVersion,
    Record,
    Signatures,
    Taint,
    read_record,
)

STANDS = "what the record states stands, and the next command follows it"
Json = Mapping[str, Any]


def record_of(client: mlflow.MlflowClient, name: str) -> Record:
    """Return the record of a registered model, from the lake that the registry names.

    Raises:
        NotFoundError: there is no such model.
        IntegrityError: as `read_record` says.
    """
    return read_record(registered(client, name))


def align(client: mlflow.MlflowClient, name: str) -> Record:
    """Set aliases and taints by the record, and return it; where its champion is not there, no alias is touched.

    A slow process may set them by a record that another has followed meanwhile. So what was set is read again, until
    it is what the record says.

    Raises:
        NotFoundError: there is no such model.
        BuildError: the registry could not be written.
        IntegrityError: as `read_record` says.
    """
    record = record_of(client, name)
    while writes := list(_copies(client, record)):
        for write in writes:
            write_row(name, write, STANDS)
        record = record_of(client, name)
    return record


def append(
    client: mlflow.MlflowClient,
    record: Record,
    version: ModelVersion,
    event: str,
    predicate: Json,
    *,
    lake: Lake | None = None,
) -> bool:
    """Add a statement about a version, and align the registry; return whether it was written.

    A change of champion is written only where it follows the last one that the record has; another process may have
    changed it since that was read. Any other statement follows whatever there is.

    Args:
        client: of the registry.
        record: of the model, as it was read.
        version: that it is about.
        event: kind of statement.
        predicate: what it says.
        lake: where the chain begins, if this is its first statement; None: the lake that the version was trained from.

    Raises:
        BuildError: the registry could not be written.
        UsageError: it is not known in which lake the chain is to begin, or this machine has no trusted key for it.
        IntegrityError: as `read_record` says.
    """
    digest, token, is_written = version.digest, record.token, False
    subject = [{"name": version.uri, "digest": {"sha256": digest or fingerprint([version.name, version.version])}}]
    about = {"version": version.version, "run": version.run_id or "", "digest": digest}
    if record.home is None:
        record = _begin(client, version, lake)
    while not is_written and (event != CHANGED or record.token == token):
        is_written = _write(record, event, subject, about, predicate)
        if not is_written:
            record = record_of(client, version.name)
    align(client, version.name)
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
    _write(
        before,
        ADOPTED,
        [{"name": last.where, "digest": {"sha256": last.digest}}],
        {},
        {"champions": there, BEST: best},
    )
    return align(client, before.model.name)


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
    said = {**predicate, "event": event, "model": {"name": record.model.name, "created": record.model.created, **about}}
    return Chain(record.home).append(next(reversed(record.chain), None), subject, said, check_signer(record))


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


def _begin(client: mlflow.MlflowClient, version: ModelVersion, lake: Lake | None) -> Record:
    """Return the record of a model that had no chain, once that has a folder: this one, or that of who is faster."""
    record = record_of(client, version.name)
    if record.home is not None:
        return record
    folder = (lake or version.lake).promotions(version.name)
    write_row(version.name, partial(client.set_registered_model_tag, version.name, HOME_TAG, folder.uri))
    return record_of(client, version.name)


def _copies(client: mlflow.MlflowClient, record: Record) -> Iterator[Callable[[], object]]:
    """Yield what is to be written so that aliases and taints in the registry are those of the record."""
    name, model = record.model.name, record.model
    if record.changes and (record.champion is None or record.is_there(record.champion)):
        before = next((each for each in record.champions[1:2] if record.is_there(each)), None)
        for alias, stated in ((PREVIOUS_CHAMPION, before), (CHAMPION, record.champion)):
            if stated is not None and model.aliases.get(alias) != stated:
                yield partial(client.set_registered_model_alias, name, alias, stated)
            elif stated is None and alias in model.aliases:
                yield partial(client.delete_registered_model_alias, name, alias)
    for number, version in model.versions.items():
        if TAINTED not in version.tags and (taint := record.taint(number)):
            yield partial(
                client.set_model_version_tag, name, number, TAINTED, json.dumps(asdict(taint), sort_keys=True)
            )
    if len(record.chain) > int(model.tags.get(COUNT_TAG, 0)):
        yield partial(client.set_registered_model_tag, name, COUNT_TAG, str(len(record.chain)))


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
        record = record_of(client, model.name)
        if went["dataset"] not in {each.predicate["dataset"] for each in record.about(model.version, TAINTED)}:
            append(client, record, model, TAINTED, {**went, "why": why}, lake=lake)
    return [model for model, _ in found]


def inherited(client: mlflow.MlflowClient, tags: Mapping[str, str]) -> Taint | None:
    """Return why a version with these tags is tainted by one that it is trained from; None: none of them is tainted."""
    start = tags.get(START_TAG, "")
    for parent in versions(client) if start else ():
        if _starts_from(start, parent) and (found := record_of(client, parent.name).taint(parent.version)):
            return replace(found, why=f"trained from {parent.uri}")
    return None


def _dependent(
    client: mlflow.MlflowClient, lake: Lake, dataset: str, version: str
) -> Sequence[tuple[ModelVersion, str]]:
    """Return each version that depends on a data set version, and in which way ("": it was trained on it)."""
    there, everything = lake.versions(dataset), versions(client)
    waiting = [(each, "") for each in everything if each.dataset == f"{dataset}@{version}"]
    waiting += [
        (each, f"trained on {each.dataset}, which is not in the lake any more")
        for each in everything
        if each.tags.get(LAKE_TAG) == lake.root.uri
        and each.dataset.startswith(f"{dataset}@")
        and each.dataset.partition("@")[2] not in there
    ]
    found: dict[str, tuple[ModelVersion, str]] = {}
    while waiting:
        model, why = waiting.pop(0)
        if model.uri not in found:
            found[model.uri] = model, why
            waiting += [
                (each, f"trained from {model.uri}")
                for each in everything
                if _starts_from(each.tags.get(START_TAG, ""), model)
            ]
    return list(found.values())


def _starts_from(start: str, parent: ModelVersion) -> bool:
    """Return whether the addresses of a start name a version, by its own or by its run's."""
    run = f"|{parent.run_id}" if parent.run_id else ""
    return re.search(f"(?:{re.escape(parent.uri)}{run})(?![0-9a-f])", start) is not None
