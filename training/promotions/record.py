"""The verified record of a registered model: who is champion, who was, who approved whom, and what is tainted.

    champion   a change of champion: by a promotion, whose decision has checks, or by a rollback
    judged     a decision of the gate that changed no champion
    evaluated  a version was scored on the documents that the gate judges by
    approval   who approves a version, by the digests of its files
    tainted    what was taken out of the data that a version was trained on
    adopted    who signs it takes over what stands before: an unsigned record, another key's, a renamed model's

The chain of statements is the record, and `read_record` and `trusted_statements` are the only ways to it. What they
return has been verified: where this machine trusts keys, each statement is signed by one of them; else either all are
signed, which nobody has checked, or none is (`Signatures`). Anything else is an error that names its file. Aliases and
taints in the registry are copies for MLflow's pages (`training.mlflow.champions.align`). docs/explanation/security.md
says who can do what.

Nothing here imports MLflow; `Registered` is what is known of a model by its registry. Which folder the chain lies in is
a tag of the registered model, and another says how many statements there are at least.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from securesystemslib.signer import Key

from schemas.lake import Folder, Lake, folder_of
from schemas.messages import IntegrityError, NotFoundError, UsageError
from training.project import command
from training.promotions.chain import Chain, Statement, check_seen, signers_of
from training.promotions.keys import trusted_keys

CHANGED, JUDGED, EVALUATED, APPROVED, TAINTED, ADOPTED = (  # events
    "champion",
    "judged",
    "evaluated",
    "approval",
    "tainted",
    "adopted",
)
CHAMPION, PREVIOUS_CHAMPION = "champion", "previous_champion"  # aliases
HOME_TAG, COUNT_TAG = "promotions", "promotions_count"  # of a registered model
MODEL_DIGEST_TAG = "model_digest"  # of a version
DATASET_TAG, VERSION_TAG, LAKE_TAG = "dataset", "dataset_version", "lake"  # of a version: what it was trained on
BEST, BEST_BEFORE = "best", "best_before"  # of a decision
STUDY, CELLS = "study", "cells"  # of a decision: what the version was chosen in, and from how many
REQUIRED = {  # of the predicate of a statement
    CHANGED: {"champions", "decision"},
    JUDGED: {"decision"},
    EVALUATED: {"decision"},
    APPROVED: {"approved_by"},
    TAINTED: {"dataset", "documents", "images"},
    ADOPTED: {"champions", BEST},
}


class Signatures(StrEnum):
    """What the signatures of a record are worth on this machine."""

    VERIFIED = "verified"
    UNCHECKED = "not checked, since no key is trusted here"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """A version in the registry.

    Attributes:
        name: registered model.
        version: number, as MLflow writes it.
        run_id: run that trained it.
        tags: data set, recipe, lake and digests.
    """

    name: str
    version: str
    run_id: str | None
    tags: Mapping[str, str]

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"

    @property
    def digest(self) -> str:
        """Return the digest of its model's files, by the registry; empty: it has none."""
        return self.tags.get(MODEL_DIGEST_TAG, "")

    @property
    def dataset(self) -> str:
        """Return the NAME@VERSION that it was trained on, by the registry; empty: that does not say."""
        return (
            f"{self.tags[DATASET_TAG]}@{self.tags[VERSION_TAG]}" if {DATASET_TAG, VERSION_TAG} <= {*self.tags} else ""
        )

    @property
    def lake(self) -> Lake:
        """Return the lake that it was trained from; raises a `UsageError` where the registry does not say."""
        if LAKE_TAG not in self.tags:
            raise UsageError(f"{self.uri}: expected a tag with the lake of its data set, found none; give --lake")
        return Lake.at(self.tags[LAKE_TAG])


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A registered model, as its registry has it.

    Attributes:
        registry: its address.
        name: of the model.
        created: when it was made, milliseconds since 1970, as text: a model of the same name may have been before it.
        aliases: alias -> version.
        tags: of the model.
        versions: those that are there, by number, the first one first.
    """

    registry: str
    name: str
    created: str
    aliases: Mapping[str, str]
    tags: Mapping[str, str]
    versions: Mapping[str, ModelVersion]

    def version(self, address: str) -> ModelVersion:
        """Return a version, given by number or alias.

        Raises:
            NotFoundError: there is no such version; the message names those there are.
        """
        number = self.aliases.get(address, address)
        if number not in self.versions:
            raise NotFoundError(
                f"no version '{address}' of model '{self.name}' in {self.registry}; "
                f"versions: {', '.join(self.versions) or 'none'}; "
                f"aliases: {', '.join(map(' = '.join, self.aliases.items())) or 'none'}"
            )
        return self.versions[number]


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
    """What trusted statements say of a registered model; made by `read_record` alone.

    Attributes:
        model: by its registry.
        home: folder of the chain; None: there is none yet.
        chain: all statements of that folder, in order.
        statements: of these, those about this model, not about an earlier one of its name or another registry's.
        signatures: what its signatures are worth here.
    """

    model: Registered
    home: Folder | None
    chain: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    signatures: Signatures

    @property
    def changes(self) -> list[Statement]:
        """Return the statements that named a champion, in order."""
        return [each for each in self.statements if each.event in (CHANGED, ADOPTED)]

    @property
    def token(self) -> str:
        """Return the digest of the last change of champion; empty: there was none."""
        return self.changes[-1].digest if self.changes else ""

    @property
    def champions(self) -> tuple[str, ...]:
        """Return the champion's version and those before it, as last stated, whether or not they are there."""
        return self.changes[-1].champions if self.changes else ()

    @property
    def champion(self) -> str | None:
        """Return the version that is champion, whatever the aliases are, and even where it was deleted."""
        return next(iter(self.champions), None)

    @property
    def best(self) -> str | None:
        """Return the version that was the best champion at the last decision; where none is named, the champion."""
        named = (each.predicate.get(BEST) or each.decision.get(BEST) for each in reversed(self.changes))
        return next((str(each) for each in named if each), self.champion)

    def is_there(self, version: str) -> bool:
        """Return whether a version is in the registry, with the run and the digest that made it champion last."""
        changed = (each for each in reversed(self.statements) if each.event == CHANGED and each.version == version)
        statement, there = next(changed, None), self.model.versions.get(version)
        return there is not None and (statement is None or _is_about(statement, there))

    def can_return(self, version: str) -> bool:
        """Return whether an earlier champion may be champion again: it is there, was promoted and is not tainted."""
        return self.is_there(version) and self.promotion(version) is not None and self.taint(version) is None

    def check_there(self, version: str) -> None:
        """Raise an `IntegrityError` where a version that is stated to be champion is not in the registry."""
        if not self.is_there(version):
            found = "another version has its number" if version in self.model.versions else "it is not in the registry"
            name, registry = self.model.name, self.model.registry
            back = f", or go back with {command('rollback', '--model', name, tracking=registry)}"
            raise IntegrityError(
                f"{self.changes[-1].where}: names models:/{name}/{version}, and {found}: restore it from a backup"
                f"{back if any(map(self.can_return, self.champions[1:])) else ''}; {_adopt(name, registry)}"
            )

    def number(self, address: str) -> str:
        """Return the number of a version, given by number or alias.

        Raises:
            NotFoundError: there is no such version.
            IntegrityError: an alias of champions is another version's than the last statement says, or that is gone.
        """
        stated = dict(zip((CHAMPION, PREVIOUS_CHAMPION), self.champions, strict=False))
        if address in stated:
            self.check_there(stated[address])
        version = self.model.version(address).version
        if self.changes and address in (CHAMPION, PREVIOUS_CHAMPION) and stated.get(address) != version:
            raise IntegrityError(
                f"alias {address} of {self.model.name} is version {version}; by {self.changes[-1].where} it is "
                f"{stated.get(address)}; the next promotion, or the schedule, sets it right"
            )
        return version

    def about(self, version: str, *events: str) -> list[Statement]:
        """Return the statements about a version of some kinds, in order; not those about another of its number."""
        there = self.model.versions.get(version)
        found = (each for each in self.statements if each.event in events and each.version == version)
        return [each for each in found if there is None or _is_about(each, there)]

    def promotion(self, version: str) -> Statement | None:
        """Return the statement that last made a version champion after it was judged."""
        return next((each for each in reversed(self.about(version, CHANGED)) if "checks" in each.decision), None)

    def attempt(
        self, version: str, dataset: str, split: str, *, measure: str = "auto", study: str = "", cells: int = 1
    ) -> int:
        """Return how many candidates the best champion has met with this one on these documents, from 1.

        The same version on the same documents by the same measure beside the same champion counts once, however often
        it is judged; a champion judged again does not count. Who scored it by `multilink evaluate` has seen as much. A
        version that was chosen from several counts as all of them, once for the study they are of.

        Args:
            version: its number.
            dataset: NAME@VERSION that it is judged on.
            split: of it.
            measure: of the policy.
            study: what it was chosen in, such as a sweep; empty: it was the only one.
            cells: how many it was chosen from.
        """
        met: dict[tuple[str, ...], int] = {}
        for each in self.statements:
            decision, is_judged = each.decision, each.event in (CHANGED, JUDGED) and "checks" in each.decision
            is_other = each.version not in (self.best, decision.get("champion_before"))
            if (is_judged or each.event == EVALUATED) and is_other and decision.get(BEST_BEFORE) == self.best:
                about = decision.get(STUDY) or f"{each.version} {each.model['digest']}"
                of = (decision.get("dataset"), decision.get("split"), decision.get("champion_before"))
                key = (about, *map(str, of), str(each.policy.get("measure", "auto")))
                met[key] = max(met.get(key, 1), int(decision.get(CELLS, 1)))
        there = self.model.versions.get(version)
        own = (study or f"{version} {there.digest if there else ''}", dataset, split, str(self.champion), measure)
        met[own] = max(met.get(own, 1), cells)
        return sum(met.values())

    def approvals(
        self, version: str, files: Mapping[str, str] | None = None, *, before: int | None = None
    ) -> list[Approval]:
        """Return who approved a version, with those keys that are found to have signed.

        Args:
            version: its number.
            files: its files with their digests, which are what is approved; None: whichever.
            before: number of a statement that the approval must come before.
        """
        return [
            Approval(each.predicate["approved_by"], each.signers)
            for each in self.about(version, APPROVED)
            if files in (None, each.predicate.get("files")) and (before is None or each.number < before)
        ]

    def taint(self, version: str) -> Taint | None:
        """Return why a version is tainted, by the first statement that says so; None: it is not."""
        first = next((each.predicate for each in self.about(version, TAINTED)), None)
        names = {each.name for each in fields(Taint)}
        return None if first is None else Taint(**{name: value for name, value in first.items() if name in names})


def trusted_statements(folder: Folder, keys: Sequence[Key] | None = None) -> list[Statement]:
    """Return the statements of a chain, each with the trusted keys that signed it (`Statement.signers`).

    Args:
        folder: of the chain.
        keys: that are trusted; None: those that this machine is set up with. Without any, signatures are not checked.

    Raises:
        IntegrityError: the chain is damaged, or a statement is not signed as the others are.
    """
    keys = trusted_keys() if keys is None else keys
    chain = [replace(each, signers=signers_of(each.envelope, keys)) for each in Chain(folder).statements()]
    # Without keys, a claimed signature is what tells a signed record from an unsigned one; it proves nothing.
    is_signed = [bool(each.signers if keys else each.envelope.signatures) for each in chain]
    adopted = (number for number, each in enumerate(chain) if each.event == ADOPTED)
    start = max((number for number in adopted if is_signed[number] or not any(is_signed)), default=0)
    expected = bool(keys) or any(is_signed[start:])
    for statement, signed in zip(chain[start:], is_signed[start:], strict=True):
        if signed != expected:
            claimed = ", ".join(key[:12] for key in statement.envelope.signatures)
            raise IntegrityError(
                f"{statement.where}: expected a trusted key's signature, found "
                f"{f'one that claims to be by the key {claimed}' if claimed else 'none'}: remove this file and those "
                f"after it unless they are by somebody whom you trust; {_adopt(folder_of(folder.uri)[1])}"
            )
    before = [replace(each, signers=chain[start].signers, is_adopted=True) for each in chain[:start]]
    return before + chain[start:]


def read_record(
    model: Registered, lake: Lake | None = None, *, keys: Sequence[Key] | None = None, is_adopting: bool = False
) -> Record:
    """Return the verified record of a registered model, from a lake or from the one that its registry names.

    Args:
        model: by its registry.
        lake: holds the chain; None: as the registry says.
        keys: as `trusted_statements` takes them.
        is_adopting: whether all of it is to be adopted, whoever wrote it: neither signatures nor names are compared.

    Raises:
        IntegrityError: the chain is damaged, lacks statements, or is not signed by trusted keys, or it is about
            another model; the message names the place.
    """
    home, keys = None, trusted_keys() if keys is None else keys
    chain: list[Statement] = []
    if HOME_TAG in model.tags:
        home = Folder(model.tags[HOME_TAG]) if lake is None else lake.promotions(model.name)
        adopted = (replace(each, is_adopted=True) for each in Chain(home).statements()) if is_adopting else ()
        chain = list(adopted) if is_adopting else trusted_statements(home, keys)
        least = int(model.tags.get(COUNT_TAG, 0))
        if len(chain) < least:
            way = command("relocate", "--from", "OLD", "--lake", "NEW", tracking=model.registry)
            raise IntegrityError(
                f"the record of promotions is incomplete ({len(chain)} of {least} statements): restore {home.uri} from "
                f"a backup, or name the lake's new address: {way}"
            )
    if keys:
        check_seen(model.registry, model.name, model.created, chain)
    for statement in chain:
        _check_content(statement, model)
    signed = any(each.envelope.signatures for each in chain) and not is_adopting
    return Record(
        model=model,
        home=home,
        chain=tuple(chain),
        statements=tuple(each for each in chain if each.model["created"] == model.created),
        signatures=Signatures.NONE if not signed else Signatures.VERIFIED if keys else Signatures.UNCHECKED,
    )


def lake_of(home: Folder) -> Lake:
    """Return the lake that the folder of a chain is in, `<lake>/promotions/<model>`."""
    path, mark, options = home.uri.partition("?") if "://" in home.uri else (home.uri, "", "")
    return Lake(Folder(path.rsplit("/", 2)[0] + mark + options))


def _check_content(statement: Statement, model: Registered) -> None:
    """Check that a statement says what its kind says, and, if it is on this model, that it calls it by its name."""
    event, about = statement.event, statement.model
    missing = REQUIRED.get(event, set()) - statement.predicate.keys()
    if missing or event not in REQUIRED:
        raise IntegrityError(f"{statement.where}: expected {', '.join(sorted(missing)) or 'a known kind'} of '{event}'")
    if about["created"] != model.created:  # another registry's, or of a model that was deleted since
        return
    if about["name"] != model.name and not statement.is_adopted:
        raise IntegrityError(
            f"{statement.where}: is about '{about['name']}', expected '{model.name}': give the model its name back, or "
            f"{_adopt(model.name, model.registry)}"
        )
    if event == ADOPTED:
        return
    try:
        (subject, *_), version, digest = statement.subject, about["version"], about["digest"]
        is_whole = subject["name"] == f"models:/{about['name']}/{version}" and isinstance(about["run"], str)
        is_whole &= not digest or subject["digest"]["sha256"] == digest
        is_whole &= event != CHANGED or statement.champions[:1] == (version,)
    except (KeyError, TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise IntegrityError(
            f"{statement.where}: expected a version with its run and digest, its subject's and champion's"
        )


def _adopt(name: str, registry: str | None = None) -> str:
    return f"to sign for the whole record: {command('promotions', name, '--adopt', tracking=registry)}"


def _is_about(statement: Statement, version: ModelVersion) -> bool:
    """Return whether a statement on a version's number is about this version: same run, same files."""
    return (statement.model["digest"], statement.model["run"]) == (version.digest, version.run_id or "")
