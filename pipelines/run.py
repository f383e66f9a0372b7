"""Building a data set version from start to commit: check, run, verify the budget, commit.

    settings + input files
                 |
                 v
    pipeline writes shards, failures, duplicates, and a draft of the manifest
                 |
                 v
    budget, leftovers of a killed run swept, manifest.json, then the `latest` pointer

Killed anywhere and run again, the same version with the same bytes comes out: what was fetched is in `raw/`, and what
was written has the same names and content. A version that was there already is reused: it is written again in place of
what may be damaged, or found to be the same.
"""

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from pipelines.build import BuildPlan, chain_stages
from pipelines.card.card import write_cards
from pipelines.card.show import describe, explain_failures, failures_by_host, host_lines
from pipelines.embedded import on_web
from pipelines.features.extraction import FeaturePlan, plan_features
from pipelines.launch import Sign, machine_error, processes_of_machine, run_pipeline
from pipelines.ledger import VERSIONS
from pipelines.packs import MANY, merge_small
from pipelines.recipe import BuildConfig
from pipelines.settings import Runner
from pipelines.shards.writing import write_rows
from pipelines.sources.source import capture_input, image_root, with_inputs
from pipelines.sources.takedowns import NO_TAKEDOWNS, Takedowns, read_takedowns
from pipelines.transforms import Progress, watched
from pipelines.turns import LEASES, turn_alone, turn_of_build
from pipelines.web.downloads import CapturedFile
from pipelines.web.requests import REMEMBERED_S
from schemas.failures import TRANSIENT, Reason, is_about_machine
from schemas.lake import DRAFTS, MANIFEST, Folder, Lake
from schemas.leases import HeldError
from schemas.manifest import CARDS, Manifest, check_same, commit, small_splits, table_parts
from schemas.messages import BuildError, UsageError
from schemas.raw import RETRIEVAL_SCHEMA, Retrieval, Retrieved, retrieval_row, retrieval_tables

SHARES_OF_A_WORKER = 8  # parts that hosts are divided into
CLUSTER_SHARES = 16_384  # where the number of workers is the cluster's affair: of 100 million images, 6,000 each


@dataclass(frozen=True, slots=True)
class BuildSummary:
    """What a build gave.

    Attributes:
        why_reused: empty where the version was not there before.
        beside: where the times and the transient failures of the version are.
    """

    manifest: Manifest
    path: str
    beside: str
    why_reused: str

    @property
    def is_reused(self) -> bool:
        return bool(self.why_reused)

    def to_json(self) -> dict[str, Any]:
        """Return the machine-readable summary."""
        splits = {
            name: {"documents": row.documents, "images": row.images, "sentences": row.sentences}
            for name, row in self.manifest.splits.items()
        }
        return {
            "dataset": self.manifest.dataset,
            "version": self.manifest.version,
            "path": self.path,
            "splits": splits,
            "failures": dict(self.manifest.failures),
            "stages": dict(self.manifest.stages),
            "reused": self.is_reused,
        }


def build_dataset(
    config: BuildConfig,
    *,
    lake: Lake,
    runner: Runner = Runner.LOCAL,
    workers: int = 1,
    beam_options: Sequence[str] = (),
    say: Callable[[str], None],
) -> BuildSummary:
    """Build a version of a data set, or find that what is read is what a version that is there was made of.

    Args:
        say: receives a line of progress now and then.

    Raises:
        UsageError: a source file is not named or not there, or a key that the source needs is not in the environment.
        BuildError: a source file cannot be fetched, no document is left, a stage is over its failure budget, or the
            run failed.
    """
    check_environment(config)
    is_here = runner is Runner.LOCAL
    with (
        without_trace(lake),
        TemporaryDirectory(prefix="multilink-run-", ignore_cleanup_errors=True) as counted,
        turn_of_build(lake, config.dataset, say) as check_turn,
        machine_errors(),
    ):
        takedowns = takedowns_of(config, lake)
        config = dataclasses.replace(config, takedowns=takedowns.fingerprint)
        config, captured = with_inputs(config, lake, say=say)
        features = features_of(config, lake=lake, workers=processes_of_machine(runner, workers, beam_options))
        if config.source.fetch is not None and not config.http.contact:
            say("http.contact is not set: hosts cannot reach you; --set http.contact=you@example.org")
        sign = None if is_here else Sign(lake.builds.child("signs"))
        name = f"{time.time_ns():016x}-{os.urandom(4).hex()}"
        listed = f"{DRAFTS}/{config.dataset}-{name}-takedowns.json"
        plan = BuildPlan(
            config=config,
            lake=lake,
            features=features,
            progress=Progress(counted if is_here else None),
            takedowns=takedowns.kept_in(lake.builds, listed),
            name=name,
            shares=SHARES_OF_A_WORKER * workers if is_here else CLUSTER_SHARES,
            begin=sign.leave if sign is not None else None,
            files=image_root(config.source),
        )
        try:
            with watched(plan.progress, say):
                run_pipeline(
                    partial(chain_stages, plan=plan),
                    runner=runner,
                    workers=workers,
                    sign=sign,
                    beam_options=beam_options,
                )
            draft = Manifest.from_json(lake.builds.read(plan.draft).decode())
            summary = finish(plan, draft, captured, check_turn=check_turn)
        finally:
            lake.builds.delete(plan.draft)
            lake.builds.delete(listed)
            plan.beside.remove()
    merge_packs(plan)
    return summary


def merge_packs(plan: BuildPlan) -> None:
    """Put small packs that a build added to together where they are many, unless another build is under way."""
    crowded = [packs for packs in (plan.access.copies, *plan.features.packs()) if len(packs.small()) > MANY]
    if crowded:
        with suppress(HeldError), turn_alone(plan.lake):
            for packs in crowded:
                merge_small(packs)


def finish(
    plan: BuildPlan,
    draft: Manifest,
    captured: Iterable[CapturedFile],
    *,
    check_turn: Callable[[], None],
) -> BuildSummary:
    """Check what a run gave against the budget, make it a version, and write when its input files were fetched.

    Raises:
        BuildError: no document is left, a stage is over its failure budget, or another process has taken the lake
            meanwhile.
        IntegrityError: the version was there, with another content.
    """
    config, lake = plan.config, plan.lake
    folder, written = lake.dataset(draft.dataset, draft.version), plan.folder(draft.version)
    beside = lake.retrievals(draft.dataset, draft.version)
    lost = lost_rows(draft, written, beside)
    check_budget(draft, config.max_failure_share, folder.uri, lost, hints=host_hints(draft, written, beside))
    manifest = draft.lasting
    check_turn()
    check_same(manifest, folder)
    was_there = written != folder
    for entry in manifest.files if was_there else ():  # equal bytes, in place of what may be damaged
        written.move(entry.path, folder)
    sweep(folder, manifest)
    write_cards(folder, manifest)
    commit(lake, manifest)
    note_ledger(plan, manifest.version)
    rows = [retrieval_row(Retrieval(Retrieved.INPUT, each.url, each.url, each.fetched_at)) for each in captured]
    if rows:
        write_rows(beside, "inputs.parquet", rows, RETRIEVAL_SCHEMA)
    why = "what was read is what the version that was there was made of" if was_there else ""
    return BuildSummary(manifest, folder.uri, beside.uri, why)


def note_ledger(plan: BuildPlan, version: str) -> None:
    """Note which build made a version first; the ledger of another one goes only where the first has all its files."""
    versions = plan.lake.ledger(plan.config.dataset, VERSIONS)
    if not versions.add(version, f"{plan.name}\n".encode()):
        first = plan.lake.ledger(plan.config.dataset, versions.read(version).decode().strip())
        if {*plan.ledger.files()} <= {*first.files()}:
            plan.ledger.remove()


@contextmanager
def without_trace(lake: Lake) -> Iterator[None]:
    """Leave nothing of a refused build in a lake that was not there."""
    was_there = lake.root.exists()
    try:
        yield
    except UsageError:
        if not was_there and all(path.startswith(f"builds/{LEASES}/") for path in lake.root.files()):
            lake.root.remove()
        raise


@contextmanager
def machine_errors() -> Iterator[None]:
    """Turn what the machine raises (disk full, read-only, no memory, too many open files) into one line."""
    try:
        yield
    except (OSError, MemoryError) as problem:
        if is_about_machine(problem):
            raise machine_error(problem or "out of memory") from problem
        raise


def features_of(config: BuildConfig, *, lake: Lake, workers: int) -> FeaturePlan:
    """Return the features of a build; see `plan_features`."""
    given = config.source.given_features
    return plan_features(config.features, config.images, config.http, given=given, lake=lake, workers=workers)


def takedowns_of(config: BuildConfig, lake: Lake) -> Takedowns:
    """Return what is in the takedown list of a build."""
    path = config.takedown_list
    return read_takedowns(capture_input(path, config, lake).path if on_web(path) else path) if path else NO_TAKEDOWNS


def check_environment(config: BuildConfig) -> None:
    """Raise a `UsageError` naming the environment variables that the source needs and that are not set."""
    missing = [name for name in config.source.environment if not os.environ.get(name)]
    if missing:
        raise UsageError(f"expected {', '.join(missing)} in the environment for this source")


def check_budget(
    manifest: Manifest, max_failure_share: float, path: str, lost: Iterable[pa.Table], *, hints: Iterable[str] = ()
) -> None:
    """Raise a `BuildError` when no document is left, or when a stage lost more than its budget to errors.

    What a data set's own rules reject (low scores, too few images, duplicates) is outside the budget.

    Args:
        lost: its tables of failures; they are read where an error says so.
        hints: what a person should know of hosts, likewise.
    """
    if not sum(split.documents for split in manifest.splits.values()):
        reasons = explain_failures(manifest, path, lost) or ["no record was read"]
        raise BuildError("\n".join([f"no document is left of {manifest.dataset}:", *reasons, *hints]))
    for stage, row in manifest.stages.items():
        if row["in"] and row["failed"] / row["in"] > max_failure_share:
            found = f"{stage}: {row['failed']} of {row['in']} failed, more than max_failure_share = {max_failure_share}"
            raise BuildError("\n".join([found, *hints]))


def sweep(folder: Folder, manifest: Manifest) -> None:
    """Delete what a killed run of the same version left beside its files."""
    for path in {*folder.files()} - {MANIFEST, *CARDS} - {entry.path for entry in manifest.files}:
        folder.delete(path)


def summary_lines(summary: BuildSummary) -> list[str]:
    """Return the end of a build in words."""
    begin = f"reused: {summary.why_reused}" if summary.is_reused else "built:"
    small = small_splits(summary.manifest)
    return [
        begin,
        *describe(summary.manifest, Folder(summary.path)),
        *host_hints(summary.manifest, Folder(summary.path), Folder(summary.beside)),
        *([f"warning: {small}"] if small else []),
    ]


def host_hints(manifest: Manifest, folder: Folder, beside: Folder) -> Iterator[str]:
    """Yield how often hosts failed and why, what of it is remembered, and how to ask again."""
    hosts = failures_by_host(lost_rows(manifest, folder, beside))
    yield from host_lines(hosts)
    yield from memory_lines(hosts)


def lost_rows(manifest: Manifest, folder: Folder, beside: Folder) -> Iterator[pa.Table]:
    """Yield the failures of a version, and those of them that another try may not see in their own words."""
    yield from table_parts(manifest, folder, "failures")
    yield from retrieval_tables(beside, is_unreached=True)


def memory_lines(hosts: Mapping[tuple[str, str], int]) -> list[str]:
    """Return which failures by host and reason are remembered, until when at the latest, and how to ask again."""
    reasons = chain.from_iterable([reason] * count for (_, reason), count in hosts.items())
    now, counts = datetime.now(UTC), Counter(reasons)
    lines = [
        f"remembered: {reason} {count}, until {now + timedelta(seconds=holds_s):%Y-%m-%d %H:%M}Z at the latest"
        for reason, count in sorted(counts.items())
        if (holds_s := REMEMBERED_S.get(Reason(reason))) is not None
    ]
    passing = sum(count for reason, count in counts.items() if Reason(reason) in TRANSIENT)
    return [
        *([f"failed for the moment: {passing}; the next build asks again"] if passing else []),
        *([*lines, "to ask for what is remembered again at once: --ask-again"] if lines else []),
    ]
