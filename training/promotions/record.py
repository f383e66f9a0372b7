"""What the statements about a registered model say: who is champion, who was, who approved whom, and what is tainted.

    champion     a change of champion: by a promotion, whose decision has checks, or by a rollback
    judged       a decision of the gate that changed no champion
    approval     who approves a version, by the digest of its files
    tainted      what was taken out of the data that a version was trained on
    taken over   the log of champions that earlier releases kept in the registry

The chain of statements is the record. Aliases and tags of the registry are copies of it, for MLflow's pages and for
searching (`training.mlflow.champions.align`). Nothing here imports MLflow; `Registered` is what is known of a model by
its registry. Which folder the chain lies in is a tag of the registered model, and another says how many statements
there are at least: a folder with fewer is another lake, or has lost some.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from securesystemslib.signer import Key

from schemas.errors import IntegrityError, NotFoundError
from schemas.lake import Folder, Lake
from training.promotions.chain import Chain, Statement

CHANGED, JUDGED, APPROVED, TAINTED, TAKEN_OVER = "champion", "judged", "approval", "tainted", "taken over"  # events
CHAMPION, PREVIOUS_CHAMPION = "champion", "previous_champion"  # aliases
HOME_TAG, COUNT_TAG = "promotions", "promotions_count"  # of a registered model
DECISION_TAG, APPROVED_TAG, MODEL_DIGEST_TAG = "promotion", "approved_by", "model_digest"  # of a version
BEST, BEST_BEFORE = "best", "best_before"  # of a decision
REQUIRED = {  # of the predicate of a statement
    CHANGED: {"champions", "decision"},
    JUDGED: {"decision"},
    APPROVED: {"approved_by"},
    TAINTED: {"dataset", "documents", "images"},
    TAKEN_OVER: {"entries"},
}
MORE = "restore {} from a backup, or name the lake's new address: multilink relocate --from OLD --lake NEW"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of champion.

    Attributes:
        champions: versions, the champion's first, then those that a rollback would go back to.
        decision: that it was made by; empty: none is known.
        token: by which it is recognised; empty: of aliases that were set before there was a record.
        at: when it was made, ISO 8601 in UTC; empty: not known.
        statement: that it is read from; None: the registry.
    """

    champions: tuple[str, ...] = ()
    decision: Mapping[str, Any] = field(default_factory=dict)
    token: str = ""
    at: str = ""
    statement: Statement | None = None

    @property
    def champion(self) -> str | None:
        return self.champions[0] if self.champions else None

    @property
    def previous(self) -> str | None:
        return self.champions[1] if len(self.champions) > 1 else None

    @property
    def signed_by(self) -> tuple[str, ...]:
        """The ids of the keys that claim to have signed it."""
        return () if self.statement is None else self.statement.signed_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registered model, as its registry has it.

    Attributes:
        name: of the model.
        created: when it was made, milliseconds since 1970, as text: a model of the same name may have been before it.
        aliases: alias -> version.
        tags: of the model.
        versions: number -> tags, of the versions that are there.
        log: changes of champion that an earlier release kept in the registry: `champions`, `token`, `decision` (JSON)
            and `since_ms`.
    """

    name: str
    created: str
    aliases: Mapping[str, str]
    tags: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    log: Sequence[Mapping[str, Any]] = ()

    def number(self, version: str) -> str:
        """Return the number of a version, given by number or alias.

        Raises:
            NotFoundError: there is no such version; the message names those there are.
        """
        found = self.aliases.get(version, version)
        if found not in self.versions:
            aliases = ", ".join(f"{alias} = {number}" for alias, number in self.aliases.items())
            raise NotFoundError(
                f"no version '{version}' of model '{self.name}'; versions: {', '.join(self.versions) or 'none'}; "
                f"aliases: {aliases or 'none'}"
            )
        return found


@dataclass(frozen=True, slots=True)
class Approval:
    """Who approved a version, and the ids of trusted keys that signed the statement on it."""

    by: str
    keys: tuple[str, ...] = ()

    def is_by(self, approver: str) -> bool:
        """Return whether it is by the approver of a policy: a name, or NAME:KEY with the first digits of a key's id."""
        name, _, key = approver.partition(":")
        return self.by == name and (not key or any(each.startswith(key) for each in self.keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """What was taken out of the data that a version was trained on; not which: that is to be forgotten.

    Attributes:
        dataset: NAME@VERSION.
        at: when, ISO 8601 in UTC.
        documents: how many documents.
        images: how many images.
        why: in which way the version depends on it; empty: it was trained on it.
    """

    dataset: str
    at: str
    documents: int
    images: int
    why: str = ""

    def __str__(self) -> str:
        went = f"{self.documents} documents and {self.images} images were taken on {self.at[:10]}"
        return (
            f"{self.why}; out of {self.dataset} {went}"
            if self.why
            else f"trained on {self.dataset}, out of which {went}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of a registered model's champions.

    Attributes:
        model: by its registry.
        home: folder of the chain; None: there is none yet.
        chain: all statements of that folder, in order.
        statements: of these, those about this model, and not about an earlier one of its name.
        changes: of champion, in order; before them one with the aliases, which count where there is no other.
    """

    model: Registered
    home: Folder | None
    chain: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    changes: tuple[Change, ...]

    @property
    def current(self) -> Change:
        """Return the last change of champion, whatever the aliases are; versions that were deleted are passed over."""
        last = self.changes[-1]
        if not last.token:
            return last
        there = tuple(version for version in last.champions if version in self.model.versions)
        return replace(last, champions=there)

    @property
    def best(self) -> str | None:
        """Return the version that was the best champion at the last decision; where none is named, the champion."""
        named = (change.decision.get(BEST) for change in reversed(self.changes))
        return next((str(each) for each in named if each in self.model.versions), self.current.champion)

    def about(self, version: str, *events: str) -> list[Statement]:
        """Return the statements about a version of some kinds, in order."""
        return [each for each in self.statements if each.event in events and each.version == version]

    def promotion(self, version: str) -> Change | None:
        """Return the change that last made a version champion after it was judged."""
        own = (each for each in reversed(self.changes) if each.champions[:1] == (version,))
        return next((each for each in own if "checks" in each.decision), None)

    def policy(self, version: str) -> Mapping[str, Any]:
        """Return the policy that a version was promoted by; empty where it was not."""
        found = self.promotion(version)
        return {} if found is None else found.decision.get("policy", {})

    def judgements(self) -> Iterator[Mapping[str, Any]]:
        """Yield every decision of the gate, whether it promoted or not, in order of time."""
        earlier = (change.decision for change in self.changes if change.statement is None)
        later = (each.predicate.get("decision") for each in self.statements if each.event in (CHANGED, JUDGED))
        yield from (each for each in (*earlier, *later) if each and "checks" in each)

    def judgement(self, version: str) -> Mapping[str, Any] | None:
        """Return the last decision of the gate on a version, None where it was not judged."""
        return next((each for each in reversed(list(self.judgements())) if each.get("version") == version), None)

    def attempt(self, version: str, dataset: str, split: str) -> int:
        """Return how many candidates the best champion has met with this one on these documents, from 1.

        The same version on the same documents beside the same champion counts once, however often it is judged.
        """
        own = (version, dataset, split, self.current.champion)
        met = {
            tuple(each.get(key) for key in ("version", "dataset", "split", "champion_before"))
            for each in self.judgements()
            if each.get(BEST_BEFORE) == self.best
        }
        return 1 + len(met - {own})

    def approvals(
        self, version: str, digest: str, keys: Sequence[Key] = (), *, before: int | None = None
    ) -> list[Approval]:
        """Return who approved a version with files of this digest, with those keys that are found to have signed.

        Args:
            version: its number.
            digest: of its files.
            keys: that are trusted.
            before: number of a statement that the approval must come before.
        """
        return [
            Approval(each.predicate["approved_by"], tuple(each.verified_by(keys)))
            for each in self.about(version, APPROVED)
            if each.model.get("digest") == digest and (before is None or each.number < before)
        ]

    def taint(self, version: str) -> Taint | None:
        """Return why a version is tainted, by the first statement that says so; None: it is not."""
        names = [each.name for each in fields(Taint)]
        first = next((each.predicate for each in self.about(version, TAINTED)), None)
        return None if first is None else Taint(**{name: first[name] for name in names if name in first})


def read_record(model: Registered, lake: Lake | None = None) -> Record:
    """Return the record of a registered model, from a lake or from the one that its registry names.

    Raises:
        IntegrityError: the chain is damaged, or lacks statements.
    """
    home, chain = None, list[Statement]()
    if HOME_TAG in model.tags:
        home = Folder(model.tags[HOME_TAG]) if lake is None else lake.promotions(model.name)
        chain, least = Chain(home).statements(), int(model.tags.get(COUNT_TAG, 0))
        if len(chain) < least:
            raise IntegrityError(
                f"the record of promotions is incomplete ({len(chain)} of {least} statements): {MORE.format(home.uri)}"
            )
    own = [each for each in chain if each.model["created"] == model.created]
    for statement in own:
        if missing := REQUIRED.get(statement.event, set()) - statement.predicate.keys():
            raise IntegrityError(f"{statement.where}: expected {', '.join(sorted(missing))} of '{statement.event}'")
    aliases = tuple(model.aliases[alias] for alias in (CHAMPION, PREVIOUS_CHAMPION) if alias in model.aliases)
    changes = [change for each in own for change in _changes(each)] if own else map(_earlier, model.log)
    return Record(
        model=model,
        home=home,
        chain=tuple(chain),
        statements=tuple(own),
        changes=(Change(champions=aliases), *changes),
    )


def _changes(statement: Statement) -> Iterator[Change]:
    predicate = statement.predicate
    if statement.event == CHANGED:
        yield Change(
            champions=tuple(predicate["champions"]),
            decision=predicate.get("decision") or {},
            token=statement.digest,
            at=predicate["at"],
            statement=statement,
        )
    if statement.event == TAKEN_OVER:
        yield from map(_earlier, predicate["entries"])


def _earlier(entry: Mapping[str, Any]) -> Change:
    """Return a change of champion of the log that earlier releases kept."""
    return Change(
        champions=tuple(entry["champions"]),
        decision=json.loads(entry["decision"] or "{}"),
        token=entry["token"],
        at=datetime.fromtimestamp(entry["since_ms"] / 1000, UTC).isoformat(),
    )


def lake_of(home: Folder) -> Lake:
    """Return the lake that the folder of a chain is in, `<lake>/promotions/<model>`."""
    path, mark, options = home.uri.partition("?") if "://" in home.uri else (home.uri, "", "")
    return Lake(Folder(path.rsplit("/", 2)[0] + mark + options))
