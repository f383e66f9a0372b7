"""The commands that make and look at data sets: they parse, delegate, and print one summary."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from pipelines.card.show import describe, failure_rows, one_line, retrieval_lines
from pipelines.config import recipe as recipe_of
from pipelines.exports import cli as exports
from pipelines.options import JsonOption, LakeOption, SetOption
from schemas.configs import override
from schemas.console import Console, left_of
from schemas.duplicates import DUPLICATE_SCHEMA
from schemas.errors import GateError, UsageError
from schemas.failures import Reason, Stage
from schemas.lake import Folder, Lake
from schemas.manifest import diff, read_manifest, table_parts, verify

features_app = typer.Typer(help="Choose an extractor of features.", no_args_is_help=True)
lake_app = typer.Typer(help="Look after a lake.", no_args_is_help=True)
datasets_app = typer.Typer(help="Look at the data sets of a lake.", no_args_is_help=True)
exports.register(datasets_app)


def build(
    dataset: Annotated[str, typer.Argument(help="Data set to build; `multilink settings` lists them.")],
    lake: LakeOption,
    beam_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- BEAM_OPTION...]", help="Beam's own options.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Named build; the data set's own by default.")] = None,
    settings: SetOption = None,
    runner: Annotated[str, typer.Option(help="local, portable, flink, spark or dataflow.")] = "local",
    workers: Annotated[int, typer.Option(help="Worker processes (local and portable).")] = 1,
    is_json: JsonOption = False,
) -> None:
    """Build a version of a data set: scrape or read its source, and write shards with features.

    Run twice, it fetches nothing twice and gives the same bytes. Beam's own options may follow, after `--`.
    """
    config = override(recipe_of(dataset, recipe), settings or [])
    console = Console(is_json=is_json)
    from pipelines.run import build_dataset, parse_runner, summary_lines
    from pipelines.sources.diy.submissions import Credentials

    summary = build_dataset(
        config,
        lake=Lake.at(lake),
        credentials=Credentials.from_environment(os.environ),
        runner=parse_runner(runner),
        workers=workers,
        beam_options=beam_options or (),
        say=console.say,
    )
    console.summarise(summary_lines(summary), summary.to_json())


@datasets_app.command("list")
def list_datasets(lake: LakeOption, is_json: JsonOption = False) -> None:
    """List the data sets of a lake with their versions; `*` marks the latest."""
    home = Lake.at(lake)
    home.check_exists()
    found = {name: {"latest": home.latest(name), "versions": home.versions(name)} for name in home.dataset_names()}
    lines = [
        f"{name}@{version}{' *' if version == row['latest'] else ''}"
        for name, row in found.items()
        for version in row["versions"] or ()
    ]
    Console(is_json=is_json).summarise(lines or [f"no data set in {home.root.uri}"], found)


@datasets_app.command("show")
def show_dataset(reference: Annotated[str, typer.Argument()], lake: LakeOption, is_json: JsonOption = False) -> None:
    """Show a version: Hessel 2019's table 1 per split, stages, failures with reasons, extractors, times of fetching."""
    home = Lake.at(lake)
    manifest, folder = read_manifest(home, reference)
    values = dataclasses.asdict(manifest) | {"path": folder.uri}
    times = retrieval_lines(home.retrievals(manifest.dataset, manifest.version))
    Console(is_json=is_json).summarise([*describe(manifest, folder.uri), *times], values)


@datasets_app.command("verify")
def verify_dataset(reference: Annotated[str, typer.Argument()], lake: LakeOption, is_json: JsonOption = False) -> None:
    """Read every byte of a version and compare it with the manifest; exit status 1 where anything differs."""
    manifest, folder = read_manifest(Lake.at(lake), reference)
    problems = list(verify(manifest, folder))
    name = f"{manifest.dataset}@{manifest.version}"
    lines = problems or [f"{name}: intact, {len(manifest.files)} files"]
    Console(is_json=is_json).summarise(lines, {"dataset": name, "intact": not problems, "problems": problems})
    if problems:
        raise GateError(f"{name}: {len(problems)} of its files differ from the manifest")


@datasets_app.command("diff")
def diff_datasets(
    old: Annotated[str, typer.Argument(help="NAME[@VERSION]")],
    new: Annotated[str, typer.Argument(help="NAME[@VERSION]")],
    lake: LakeOption,
    is_json: JsonOption = False,
) -> None:
    """Show what differs between two versions: settings, inputs, counts, files."""
    home = Lake.at(lake)
    differences = list(diff(read_manifest(home, old)[0], read_manifest(home, new)[0]))
    Console(is_json=is_json).summarise(
        differences or ["no difference"], {"old": old, "new": new, "differences": differences}
    )


@datasets_app.command("failures")
def list_failures(
    reference: Annotated[str, typer.Argument(help="NAME[@VERSION]")],
    lake: LakeOption,
    reason: Annotated[str | None, typer.Option(help="Only those of one reason (low-score, not-found ...).")] = None,
    stage: Annotated[str | None, typer.Option(help="Only those of one stage (sources, images ...).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows to print at most.")] = 100,
    is_json: JsonOption = False,
) -> None:
    """Print what was rejected or failed in a build, a row each: stage, reason, record, what was found."""
    for option, value, known in (("--reason", reason, [*Reason]), ("--stage", stage, [*Stage])):
        if value is not None and value not in known:
            raise UsageError(f"{option} {value}: expected one of {', '.join(known)}")
    manifest, folder = read_manifest(Lake.at(lake), reference)
    rows, total = failure_rows(manifest, folder, reason=reason, stage=stage, limit=limit)
    lines = [
        f"{row['stage']:10}{row['reason']:20} {one_line(row['record_id'] + ': ' + row['message'])}" for row in rows
    ]
    name = f"{manifest.dataset}@{manifest.version}"
    lines.append(f"{name}: {len(rows)} of {total} failure rows; all are in {folder.uri}/failures")
    Console(is_json=is_json).summarise(lines, {"dataset": name, "total": total, "failures": rows})


@datasets_app.command("duplicates")
def show_duplicates(
    reference: Annotated[str, typer.Argument(help="NAME[@VERSION]")],
    lake: LakeOption,
    output: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("duplicates.html"),
    is_json: JsonOption = False,
) -> None:
    """Write a page of a version's clusters of near-duplicate images, side by side."""
    from pipelines.card.duplicates import duplicates_page

    home = Lake.at(lake)
    manifest, folder = read_manifest(home, reference)
    rows = pa.concat_tables([DUPLICATE_SCHEMA.empty_table(), *table_parts(manifest, folder, "duplicates")])
    name = f"{manifest.dataset}@{manifest.version}"
    Folder(str(output.parent)).write(output.name, duplicates_page(rows, home, title=name).encode())
    clusters = len(rows.column("cluster").unique())
    values = {"dataset": name, "clusters": clusters, "images": rows.num_rows, "page": str(output)}
    Console(is_json=is_json).summarise([f"{name}: {rows.num_rows} images in {clusters} clusters: {output}"], values)


@features_app.command("list")
def list_features(settings: SetOption = None, is_json: JsonOption = False) -> None:
    """List the extractors with what they give, where their weights come from, and what is missing to use them.

    With `--set features.weights=NAME=FILE` it tells whether that file will do.
    """
    from pipelines.config import recipe
    from pipelines.features.catalogue import listed_extractors, listing
    from schemas.configs import override

    config = override(recipe("documents"), settings or [])
    rows = listed_extractors(config.features, config.http)
    Console(is_json=is_json).summarise(listing(rows), {row["name"]: row for row in rows})


@features_app.command("bench")
def bench_features(
    names: Annotated[list[str] | None, typer.Argument(help="Extractors; those of the settings by default.")] = None,
    images: Annotated[int, typer.Option(help="Made-up pictures, and sentences, to measure with.")] = 32,
    settings: SetOption = None,
    is_json: JsonOption = False,
) -> None:
    """Measure extractors on this machine: images or sentences a second, and what each value takes in a data set.

    An extractor that needs weights is given them by `--set features.weights=NAME=FILE`.
    """
    from pipelines.config import recipe
    from pipelines.features.catalogue import measured, measurements
    from schemas.configs import override

    config = override(recipe("documents"), settings or [])
    console, rows = Console(is_json=is_json), []
    chosen, began = names or (*config.features.images, *config.features.sentences), time.monotonic()
    for done, name in enumerate(chosen):
        left = left_of(done, len(chosen), time.monotonic() - began)
        console.say(f"measuring {name}, {done + 1} of {len(chosen)}, with {images} items{left}")
        rows.append(measured(name, config.features, config.http, count=images))
    console.summarise(measurements(rows), {row["name"]: row for row in rows})


@lake_app.command("sweep")
def sweep(
    lake: LakeOption,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing, and say what would go.")] = False,
    is_json: JsonOption = False,
) -> None:
    """Delete the copies, features and notes that no version of a lake needs, and what unfinished builds left."""
    from pipelines.sweep import sweep_lake

    at = Lake.at(lake)
    at.check_exists()
    swept = sweep_lake(at, dry_run=is_dry_run)
    verb = "would delete" if is_dry_run else "deleted"
    line = f"{verb}: {len(swept.paths)} files, {swept.bytes / 1e6:.1f} MB"
    Console(is_json=is_json).summarise([*swept.paths, line], dataclasses.asdict(swept) | {"dry_run": is_dry_run})
