"""The record of promotions: approvals, rollbacks, proofs, keys, and copies of models."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands import options
from orchestration.steps import promote
from schemas.lake import Lake
from schemas.messages import GateError, UsageError
from training.project import command

if TYPE_CHECKING:
    from training.mlflow.promotion import Promotion


def promote_command(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as challenger.")],
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Settings of the gate, as TOML; the guide's page on promotion describes them.",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="NAME or NAME@VERSION to score on; by default the one that the model was trained on."),
    ] = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, but change and record nothing.")] = False,
    lake: Annotated[
        str | None,
        typer.Option("--lake", help="Lake of the data set; by default the one that the model was trained from."),
    ] = None,
    store: options.Store = "",
    workers: options.ShardWorkers = 1,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Make a version the champion if the policy allows it; exit status 1 if not.

    Without a policy, it must beat a random model, and be shown to be at most one point worse than the champion and than
    the best champion ever, on at least 20 validation documents of the data set's latest version.
    """
    promotion = promote(
        say,
        model=model,
        version=version,
        policy=str(policy or ""),
        dataset=dataset,
        is_dry_run=is_dry_run,
        lake=lake or "",
        store=store,
        workers=workers,
        tracking_uri=tracking,
    )
    yield _lines(promotion, tracking), promotion.to_json()
    if not promotion.decision.is_promoted:
        unmet = ", ".join(check.name for check in promotion.decision.checks if not check.is_passed)
        raise GateError(f"{promotion.candidate.uri} was not promoted; not met: {unmet}")


def _lines(promotion: "Promotion", tracking: str | None) -> Iterator[str]:
    candidate, decision = promotion.candidate, promotion.decision
    verb = "would be" if promotion.is_dry_run else "is"
    verdict = f"{candidate.uri} {verb} {'' if decision.is_promoted else 'not '}the champion"
    if not decision.is_promoted and promotion.champion == candidate.version:
        verdict = f"{candidate.uri} stays the champion by its earlier statement, which is not renewed"
    yield verdict
    yield from (f"  {'met    ' if check.is_passed else 'NOT MET'}  {check.reason}" for check in decision.checks)
    yield from (f"  {each}" for each in decision.differences)
    if decision.is_waiting:
        about = ("--model", candidate.name, "--version", candidate.version, "--by", "YOUR_NAME")
        yield f"next: {command('approve', *about, tracking=tracking)}"
    if decision.is_promoted and not promotion.is_dry_run:
        yield from options.signature_lines()


def approve_command(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as challenger.")],
    by: Annotated[str, typer.Option(metavar="WHO", help="Name of the person who approves.")],
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Approve a version for promotion if the policy requires it; its next promotion can then succeed."""
    from training.mlflow.loading import open_registry
    from training.mlflow.promotion import approve

    found = approve(open_registry(tracking, [f"models:/{model}"]), model, version, by=by)
    yield (
        [f"{found.uri} is approved by {by}", *options.signature_lines()],
        {"model": found.name, "version": found.version, "approved_by": by},
    )


def rollback_command(
    model: options.Model,
    champion: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="Only if this version is the champion.")
    ] = None,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Make the previous champion the champion again; exit status 1 if there is none."""
    from training.mlflow.loading import open_registry
    from training.mlflow.promotion import rollback

    restored, replaced = rollback(open_registry(tracking, [f"models:/{model}"]), model, champion=champion)
    yield (
        [f"{restored.uri} is the champion again, in place of version {replaced}", *options.signature_lines()],
        {"model": restored.name, "version": restored.version, "champion_before": replaced},
    )


def promotions_command(
    name: Annotated[str, typer.Argument(help="Registered model.")],
    is_adopted: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Sign for the whole record with your key: an unsigned record, one of another key, or one of the "
            "model's earlier name.",
        ),
    ] = False,
    tracking: options.Tracking = None,
) -> options.Summaries:
    """List who was champion when, by which decision, on which data, and by whose signature.

    With trusted keys, every signature is checked first. A record without their signature is an error.
    """
    from training.mlflow.champions import adopt, record_of
    from training.mlflow.loading import open_registry
    from training.promotions.proof import championships, lines

    client = open_registry(tracking, [f"models:/{name}"])
    record = adopt(client, name) if is_adopted else record_of(client, name)
    found = championships(record)
    table = [*lines(found), f"signatures: {record.signatures}"] if found else [f"{name}: no version was ever promoted"]
    yield table, {"promotions": found, "signatures": record.signatures}


def verify_command(
    model: Annotated[str, typer.Argument(metavar="NAME[@champion|@VERSION]", help="Registered model.")],
    trust: options.Trust = None,
    is_deep: Annotated[bool, typer.Option("--deep", help="Score it again, and compare every score.")] = False,
    lake: Annotated[
        str | None,
        typer.Option("--lake", help="Lake with its statements and data; by default the one in the registry."),
    ] = None,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Compare a champion with its signed statements: files, data and, with --deep, scores.

    At the first difference it prints where it is and exits with status 2.
    """
    from training.promotions.proof import keys_of

    keys = keys_of(trust or ())
    name, _, version = model.removeprefix("models:/").replace("/", "@").partition("@")
    from training.mlflow.judging import verify_champion
    from training.mlflow.loading import open_registry

    proof, findings = verify_champion(
        open_registry(tracking, [f"models:/{name}"]),
        name,
        version or "champion",
        keys=keys,
        lake=None if lake is None else Lake.at(lake),
        is_deep=is_deep,
        say=say,
    )
    yield (
        [f"{proof.uri} is as it was promoted", *(f"  {each}" for each in findings)],
        {
            "model": proof.record.model.name,
            "version": proof.version,
            "statement": proof.statement.where,
            "signed_by": list(proof.statement.signers),
            "findings": findings,
        },
    )


def key_command(
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="MULTILINK_KEY",
            help="File of the private key; by default multilink/key.pem in your folder of settings.",
        ),
    ] = None,
) -> options.Summaries:
    """Make a key that signs your promotions, approvals and rollbacks from now on.

    The public key is in the same folder, with the ending .pub.pem. Give it to everybody who verifies champions.
    """
    from training.promotions.keys import key_path, make_key, public_path

    private = to or key_path()
    public = make_key(private)
    yield (
        [
            f"private key {private}: keep it to yourself",
            f"public key {public_path(private)}: give it to others",
            f"known as {public.keyid}",
        ],
        {"private": str(private), "public": str(public_path(private)), "key": public.keyid},
    )


def copy_command(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as champion.")],
    to: Annotated[str, typer.Option(metavar="URI", help="MLflow's address of the other registry.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Its name there; the same by default.")
    ] = None,
    tracking: options.Tracking = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Copy a version with its run to another registry, for example from staging to production, as its challenger."""
    from training.mlflow.copying import DIGEST_TAG, copy_version
    from training.mlflow.loading import open_registry
    from training.mlflow.runs import COPIED_TAG
    from training.mlflow.stored import tracking_uri

    source, target = open_registry(tracking, [f"models:/{model}"]).tracking_uri, tracking_uri(to)
    copied, is_new = copy_version(source, model, version, to=target, new_name=name, say=say)
    origin, digest = copied.tags[COPIED_TAG], copied.tags[DIGEST_TAG]
    yield (
        [f"{copied.uri} was copied from {origin}{'' if is_new else ' before'}", f"sha256 {digest}"],
        {
            "model": copied.name,
            "version": copied.version,
            "copied_from": origin,
            "digest": digest,
            "is_new": is_new,
        },
    )


def relocate_command(
    old: Annotated[str, typer.Option("--from", metavar="OLD", help="Earlier path or URI of a moved lake.")] = "",
    lake: Annotated[str, typer.Option("--lake", metavar="NEW", help="Present path or URI of that lake.")] = "",
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Repair a store of runs and models after its folder, or with --from and --lake its lake, was moved or copied.

    The paths in the store are changed to the new folder, or the addresses of the lake to the new one.
    """
    from training.mlflow.stored import tracking_uri

    uri = tracking_uri(tracking)
    if bool(old) != bool(lake):
        raise UsageError("relocate: expected both --from OLD and --lake NEW for a lake that was moved, or neither")
    if lake:
        from training.mlflow.champions import relocate_lake
        from training.mlflow.loading import open_registry

        home = options.known_lake(lake)
        tags = relocate_lake(open_registry(tracking), old, home)
        yield [f"{tags} addresses of {Lake.at(old).root.uri} in {uri} are {home.root.uri} now"], {"tags": tags}
        return
    from training.mlflow.stored import relocate

    was, paths = relocate(uri)
    yield [f"{paths} paths of {uri} were changed; the old folder was {was}"], {"was": was, "paths": paths}
