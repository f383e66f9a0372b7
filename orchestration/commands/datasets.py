"""Look at the data sets of a lake."""

from dataclasses import asdict
from itertools import chain
from typing import Annotated

import typer

from orchestration.commands import options
from orchestration.steps import build
from pipelines.card.show import describe, failure_rows, failures_by_host, host_lines, one_line, retrieval_lines
from pipelines.settings import Runner
from schemas.failures import Failure, Reason, Stage
from schemas.lake import Lake
from schemas.manifest import diff, read_manifest, table_parts, verify
from schemas.messages import GateError, UsageError
from schemas.parts import measured_ranges, vector_ranges
from schemas.raw import retrieval_tables


# Of no group: it stands beside those of `datasets`.
def build_command(
    dataset: Annotated[str, typer.Argument(help="Data set to build; `multilink settings` lists them.")],
    lake: options.LakePath,
    beam_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- BEAM_OPTION...]", help="Options of Beam.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Named build; the data set's own by default.")] = None,
    settings: options.Settings = None,
    runner: Annotated[Runner, typer.Option(help="Where Beam runs.")] = Runner.LOCAL,
    workers: Annotated[int, typer.Option(help="Worker processes (local).")] = 1,
    *,
    ask_again: Annotated[
        bool, typer.Option(help="Repeat refused requests (403, 404), which are remembered otherwise.")
    ] = False,
    say: options.Progress,
) -> options.Summaries:
    """Build a version of a data set: scrape or read its source, and write shards with features.

    A second run repeats only requests that failed temporarily, and writes the same bytes; refusals of hosts are
    remembered for days. Options of Beam follow after `--`.
    """
    summary = build(
        say,
        dataset=dataset,
        recipe=recipe or "",
        settings=tuple(settings or ()),
        lake=lake,
        runner=runner,
        workers=workers,
        beam_options=tuple(beam_options or ()),
        ask_again=ask_again,
    )
    from pipelines.run import summary_lines

    yield summary_lines(summary), summary


def list_command(lake: options.LakePath) -> options.Summaries:
    """List the data sets of a lake with their versions; `*` marks the latest."""
    home = options.known_lake(lake)
    found = {name: {"latest": home.latest(name), "versions": home.versions(name)} for name in home.dataset_names()}
    lines = [
        f"{name}@{version}{' *' if version == row['latest'] else ''}"
        for name, row in found.items()
        for version in row["versions"] or ()
    ]
    yield lines or [f"no data set in {home.root.uri}"], found


def show_command(version: options.Version) -> options.Summaries:
    """Show a version: statistics by split (Hessel 2019, table 1), stages, failures, extractors, times."""
    home, manifest, folder = version()
    beside = home.retrievals(manifest.dataset, manifest.version)
    hosts = failures_by_host(
        chain(table_parts(manifest, folder, "failures"), retrieval_tables(beside, is_unreached=True))
    )
    yield (
        [*describe(manifest, folder), *host_lines(hosts), *retrieval_lines(beside)],
        asdict(manifest) | {"path": folder.uri},
    )


def verify_command(
    version: options.Version,
    is_deep: Annotated[
        bool,
        typer.Option("--deep", help="Measure the vectors again, and check the notes of the manifest."),
    ] = False,
) -> options.Summaries:
    """Read every byte of a version and compare it with the manifest; exit status 1 if something differs."""
    _, manifest, folder = version()
    problems = list(verify(manifest, folder))
    if is_deep and not problems:
        noted = vector_ranges(manifest, folder)
        for name, found in measured_ranges(manifest, folder).items():
            if found != noted[name]:
                problems.append(f"{name}: its vectors are {found}, the manifest notes {noted[name]}")
    lines = problems or [f"{manifest.reference}: intact, {len(manifest.files)} files"]
    yield lines, {"dataset": manifest.reference, "intact": not problems, "problems": problems}
    if problems:
        raise GateError(f"{manifest.reference}: {len(problems)} of its files differ from the manifest")


def diff_command(old: options.Reference, new: options.Reference, lake: options.LakePath) -> options.Summaries:
    """Show the differences between two versions: settings, inputs, counts, files."""
    home = Lake.at(lake)
    found = list(diff(read_manifest(home, old)[0], read_manifest(home, new)[0]))
    yield found or ["no difference"], {"old": old, "new": new, "differences": found}


def overlap_command(first: options.Reference, second: options.Reference, lake: options.LakePath) -> options.Summaries:
    """Count the common ids, addresses and texts of documents, and contents and addresses of images, of two versions."""
    from orchestration.workflows.overlap import overlaps

    home = Lake.at(lake)
    (one, at_one), (two, at_two) = read_manifest(home, first), read_manifest(home, second)
    found = overlaps(one, two, (at_one, at_two))
    lines = [f"{'':20} {'first alone':>12} {'both':>10} {'second alone':>13}"]
    lines += [f"{row.thing:20} {row.first:12,} {row.both:10,} {row.second:13,}" for row in found]
    yield lines, {"first": one.reference, "second": two.reference, "overlaps": [asdict(row) for row in found]}


def failures_command(
    version: options.Version,
    reason: Annotated[
        Reason | None, typer.Option(metavar="REASON", help="Only those of one, such as not-found.")
    ] = None,
    stage: Annotated[Stage | None, typer.Option(metavar="STAGE", help="Only those of one, such as images.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of rows to print at most.")] = 100,
) -> options.Summaries:
    """Print the records that a build rejected or could not process, one a row: stage, reason, record, message."""
    _, manifest, folder = version()
    rows, total = failure_rows(manifest, folder, reason=reason, stage=stage, limit=limit)
    lines = [
        f"{row['stage']:10}{row['reason']:20} {one_line(Failure(**row).where + ': ' + row['message'])}" for row in rows
    ]
    lines.append(f"{manifest.reference}: {len(rows)} of {total} failure rows; all are in {folder.uri}/failures")
    yield lines, {"dataset": manifest.reference, "total": total, "failures": rows}


def export_command(
    version: options.Version,
    target: Annotated[str, typer.Argument(metavar="DIR", help="New or empty folder to write to, or its URI.")],
    form: Annotated[str, typer.Option("--to", metavar="FORMAT", help="mmc4, obelics, webdataset, hf or lance.")],
    *,
    say: options.Progress,
) -> options.Summaries:
    """Write a version, pictures included, in a format that other projects read, with a card."""
    from pipelines.exports.export import export_version

    _, manifest, folder = version()
    export = export_version(manifest, folder, Lake.at(target).root, form=form, say=say)
    size = sum(entry.bytes for entry in export.files)
    line = f"{export.dataset}@{export.version} as {form}: {len(export.files)} files, {size / 1e6:.1f} MB: {target}"
    yield [line], export.to_json() | {"path": target}


def replicate_command(
    reference: options.References,
    target: Annotated[str, typer.Argument(metavar="LAKE", help="Path or URI of the other lake.")],
    lake: options.LakePath,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Copy versions to a second lake, and check every byte; a repeated call copies only missing files."""
    from pipelines.exports.export import replicate

    replicas = replicate(Lake.at(lake), reference, Lake.at(target), say=say)
    name = reference.partition("@")[0]
    lines = [
        f"{name}@{each.version}: {each.copied} files copied, {each.bytes / 1e6:.1f} MB; {each.there} were there before"
        for each in replicas
    ]
    yield lines, {"dataset": name, "lake": target, "versions": replicas}


def subset_command(
    version: options.Version,
    share: Annotated[
        float, typer.Option(help="Share of the documents, chosen by their ids: those of 0.1 are among those of 0.2.")
    ] = 1.0,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="File with the ids of the documents, one a line.", callback=options.existing_path
        ),
    ] = None,
    *,
    say: options.Progress,
) -> options.Summaries:
    """Write a version of a part of another version's documents, with their images, features and splits."""
    from pipelines.exports.subset import Selection, read_ids, subset_lines, write_subset
    from pipelines.turns import turn_of_build

    home, manifest, folder = version()
    selection = Selection(share=share, ids=read_ids(ids, manifest, folder) if ids else None)
    with turn_of_build(home, manifest.dataset, say):
        subset = write_subset(home, manifest, folder, selection, say=say)
    yield subset_lines(subset, manifest), asdict(subset) | {"path": home.dataset(subset.dataset, subset.version).uri}


def delete_command(
    reference: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="Version to delete.")],
    lake: options.LakePath,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Delete it permanently; without this option, list what would be deleted.")
    ] = False,
) -> options.Summaries:
    """Delete a version with its links and indexes; refuses the latest version and versions that a champion needs.

    `multilink lake sweep` then removes copies and features that no other version has.
    """
    if "@" not in reference:
        raise UsageError(f"{reference}: expected NAME@VERSION")
    found = options.known_dataset(lake, reference)
    from pipelines.sweep import delete_version
    from training.promotions.proof import needed_by_champions

    home = options.known_lake(lake)
    gone = delete_version(home, found, needed_by=needed_by_champions(home), dry_run=not is_sure)
    verb = "deleted" if is_sure else "nothing was changed; --yes deletes"
    lines = [*gone.paths, f"{verb}: {found}, {len(gone.paths)} files, {gone.bytes / 1e6:.1f} MB"]
    yield lines, asdict(gone) | {"dataset": found, "dry_run": not is_sure}
