"""Every command that trains, measures, compares, promotes or serves: it parses, makes one call, and prints a summary.

Commands that link documents, or need `pipelines` as well, are in `orchestration`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.configs import override
from schemas.console import Console
from schemas.errors import GateError, UsageError
from schemas.lake import Lake
from training import options
from training.recipes import DEFAULT_RECIPE
from training.recipes import recipe as named_recipe


def train(
    lake: options.LakePath,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION; a resumed run knows its own.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Named settings; `multilink settings` lists them.")] = None,
    settings: options.Settings = None,
    workers: Annotated[int, typer.Option(help="Training processes.")] = 1,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue this run from its last checkpoint.")
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="Take the model of an earlier run with these settings; continue a stopped run."),
    ] = False,
    with_report: Annotated[
        bool, typer.Option("--report/--no-report", help="Judge the kept model, and keep its report and scores with it.")
    ] = True,
    tracking: options.NewTracking = None,
    is_json: options.Json = False,
) -> None:
    """Train on a data set, log the run in MLflow, and register the kept model as the challenger."""
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected at least 1")
    if reuse and resume is not None:
        raise UsageError("--reuse finds the run to continue by its settings; leave out --resume")
    if resume is None:
        override(named_recipe(recipe or DEFAULT_RECIPE), settings or [])
        dataset = options.known_dataset(lake, dataset or "")
    from training.mlflow.tracked_training import run_train

    console = Console(is_json=is_json)
    summary = run_train(
        lake=lake,
        dataset=dataset,
        recipe=recipe,
        overrides=settings or [],
        workers=workers,
        resume=resume,
        reuse=reuse,
        tracking=tracking,
        say=console.say,
    )
    lines, values = summary.lines(), summary.to_json()
    if with_report:
        from training.commands import run_training_report

        judged = run_training_report(summary, lake=lake, tracking=tracking, say=console.say)
        lines += [] if judged is None else judged.lines()
        values["evaluation"] = None if judged is None else judged.to_json()
    console.summarise(lines, values)


def evaluate(
    model: Annotated[
        str | None, typer.Option(help="models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model or a folder.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION.")] = None,
    split: options.Split = "test",
    lake: options.LakePath = "",
    report: options.Report = None,
    scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=options.is_there, help="Score matrices made elsewhere: JSON Lines."),
    ] = None,
    with_captions: Annotated[bool, typer.Option("--captions", help="Caption metrics, too; most need Java.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(help="Instead of a model: random, nearest-sentence, object-detection, joint-embeddings."),
    ] = None,
    with_baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="Score the baselines beside the model, too.")
    ] = True,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="What baselines read, samples of retrieval, position=true for the ablation.",
        ),
    ] = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Score a model's links on a data set: AUC and precision at 1 and 5, each with its 95% bootstrap interval.

    Retrieval, relations, calibration and the rest are measured where they apply, beside the baselines the data set
    carries what they need for; all numbers are kept as a table with the model's run and beside the report.

    With --scores, the matrices of a file are scored: one JSON line a document, {"id", "scores": [[...]], "links":
    [[sentence, image], ...]}.
    """
    console = Console(is_json=is_json)
    given = {"--model": model, "--dataset": dataset, "--lake": lake, "--scores": scores, "--report": report}
    if settings and scores is not None:
        raise UsageError("--set: of the baselines and of retrieval, and a scores file has neither")
    if baseline is not None:
        _check(
            "evaluate --baseline", given, needed=["--dataset", "--lake"], refused=["--model", "--scores", "--report"]
        )
    elif scores is not None:
        _check("evaluate --scores", given, refused=["--model", "--dataset", "--report"])
    else:
        _check("evaluate", given, needed=["--model", "--dataset", "--lake"])
    reference = "" if scores is not None else options.known_dataset(lake, dataset or "")
    from training.commands import run_baseline, run_evaluate, run_evaluate_scores, run_report
    from training.evaluation.evaluate import STANDARD_CONFIG

    config = override(STANDARD_CONFIG, settings or [])
    if baseline is not None:
        summary = run_baseline(baseline=baseline, dataset=reference, lake=lake, split=split, config=config)
    elif scores is not None:
        summary = run_evaluate_scores(scores)
    else:
        summary = run_evaluate(
            model=model or "",
            dataset=reference,
            lake=lake,
            split=split,
            tracking=tracking,
            config=config,
            with_captions=with_captions,
            with_baselines=with_baselines,
            say=console.say,
        )
    page = None if report is None else run_report(summary, lake=lake, directory=report, tracking=tracking)
    _summarise(console, summary.lines(), summary.to_json(), page)


def examples(
    model: Annotated[str, typer.Option(help="models:/NAME/VERSION, models:/NAME@ALIAS, runs:/RUN/model or a folder.")],
    dataset: options.Dataset,
    lake: options.LakePath,
    split: options.Split = "test",
    count: Annotated[int, typer.Option(help="Documents that are shown.")] = 6,
    report: options.Report = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Show what a model links in the documents whose images and sentences differ most; links need not be known.

    Beside it stands the loss of the model's objective on the split: what there is to judge by without links.
    """
    dataset = options.known_dataset(lake, dataset)
    from training.commands import run_examples
    from training.report.pages import examples_page, write_page

    console = Console(is_json=is_json)
    found = run_examples(
        model=model, dataset=dataset, lake=lake, split=split, count=count, tracking=tracking, say=console.say
    )
    page = None
    if report is not None:
        shown, about = [each.example for each in found.documents], {"dataset": found.dataset, "split": found.split}
        page = write_page(report, examples_page(shown, model=found.model, loss=found.loss, **about))
    _summarise(console, found.lines(), found.to_json(), page)


def compare(
    models: Annotated[
        list[str], typer.Argument(metavar="RUN_OR_MODEL...", help="Or baselines by name; the first is the yardstick.")
    ],
    lake: options.LakePath,
    dataset: Annotated[str | None, typer.Option(help="NAME or NAME@VERSION; the first model's by default.")] = None,
    split: options.Split = "test",
    report: options.Report = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Put models side by side on the same documents: means, paired differences to the first, and agreement."""
    if len(models) < 2:
        raise UsageError(f"compare: expected at least two models, found {len(models)}")
    if dataset is not None:
        dataset = options.known_dataset(lake, dataset)
    from training.commands import run_compare
    from training.report.pages import write_page
    from training.report.studies import comparison_lines, comparison_page

    console = Console(is_json=is_json)
    found = run_compare(models=models, dataset=dataset, lake=lake, split=split, tracking=tracking, say=console.say)
    page = None if report is None else write_page(report, comparison_page(found))
    _summarise(console, comparison_lines(found), found.to_json(), page)


def supervised(
    lake: options.LakePath,
    dataset: options.Dataset,
    recipe: Annotated[str, typer.Option(help="Named settings, whose objective is the one compared with.")] = "tiny",
    settings: options.Settings = None,
    shares: Annotated[str, typer.Option(help="Shares of labelled documents, separated by commas.")] = "0.1,0.2,0.4,1",
    split: options.Split = "test",
    report: options.Report = None,
    is_json: options.Json = False,
) -> None:
    """Show how many labelled documents a supervised model needs to match what is learnt without links.

    Trains in this process; nothing is registered.
    """
    config, reference = override(named_recipe(recipe), settings or []), options.known_dataset(lake, dataset)
    try:
        parts = [float(share) for share in _items(shares, "--shares")]
    except ValueError:
        raise UsageError(f"--shares {shares!r}: expected numbers in (0, 1], separated by commas") from None
    from training.evaluation.studies import supervised_curve
    from training.report.pages import write_page
    from training.report.studies import curve_table, supervised_page

    console = Console(is_json=is_json)
    points = list(supervised_curve(config, Lake.at(lake), reference, shares=parts, split=split, say=console.say))
    page = None if report is None else write_page(report, supervised_page(points, dataset=reference, split=split))
    values = {"dataset": reference, "split": split, "points": [point.to_json() for point in points]}
    _summarise(console, [f"{reference}, {split}", *curve_table(points).lines()], values, page)


def sweep(
    lake: options.LakePath,
    dataset: options.Dataset,
    recipe: Annotated[str | None, typer.Option(help="Named settings; `multilink settings` lists them.")] = None,
    settings: options.Settings = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE,...",
            help="Try each of these values; given again, each combination. By default 10, 20 and 30 negative "
            "documents, of which the hardest or the mean counts (Hessel 2019, tables S1-S4).",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Training processes.")] = 1,
    split: options.Split = "test",
    report: options.Report = None,
    tracking: options.NewTracking = None,
    is_json: options.Json = False,
) -> None:
    """Train every combination of some settings as `train` does, and judge the models side by side.

    Called again, it goes on where it was: what was trained with the same settings is not trained again.
    """
    override(named_recipe(recipe or DEFAULT_RECIPE), settings or [])
    dataset = options.known_dataset(lake, dataset)
    from training.report.pages import write_page
    from training.report.studies import sweep_page, sweep_table
    from training.sweep import PAPER, run_sweep

    console = Console(is_json=is_json)
    found = run_sweep(
        lake=lake,
        dataset=dataset,
        recipe=recipe,
        overrides=settings or [],
        vary=vary or PAPER,
        workers=workers,
        split=split,
        tracking=tracking,
        say=console.say,
    )
    page = None if report is None else write_page(report, sweep_page(found))
    problems = [f"- {', '.join(cell.settings)}: {cell.problem}" for cell in found.cells if cell.problem]
    lines = [f"{found.dataset}, {found.split}", *sweep_table(found).lines(), *problems, f"run {found.run}"]
    _summarise(console, lines, found.to_json(), page)


def transfer(
    lake: options.LakePath,
    models: Annotated[str, typer.Option(help="Addresses of models, separated by commas, as for evaluate.")],
    datasets: Annotated[str, typer.Option(help="NAME or NAME@VERSION of data sets, separated by commas.")],
    split: options.Split = "test",
    report: options.Report = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Judge models on data sets they were not trained on: AUC of every model on every data set."""
    addresses = _items(models, "--models")
    references = [options.known_dataset(lake, dataset) for dataset in _items(datasets, "--datasets")]
    from training.commands import run_transfer
    from training.report.pages import write_page
    from training.report.studies import transfer_page, transfer_table

    console = Console(is_json=is_json)
    cells = run_transfer(
        models=addresses,
        datasets=references,
        lake=lake,
        split=split,
        tracking=tracking,
        say=console.say,
    )
    problems = [f"- {cell.model} on {cell.dataset}: {cell.problem}" for cell in cells if cell.problem]
    page = None if report is None else write_page(report, transfer_page(cells, split=split))
    values = {"split": split, "cells": [cell.to_json() for cell in cells]}
    _summarise(console, [*transfer_table(cells).lines(), *problems], values, page)


def promote(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as challenger.")],
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings of the gate: TOML; see training/mlflow/policy.py.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="NAME or NAME@VERSION to score on; what the model was trained on, by default.")
    ] = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, but move and record nothing.")] = False,
    lake: Annotated[str | None, typer.Option("--lake", help="Lake of the data set; the model knows its own.")] = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Make a version the champion if the policy allows it; exit status 1 where not.

    Without a policy: it must beat random, not be worse than the champion, on at least 20 documents of the validation
    split of the latest version.
    """
    from training.mlflow.policy import read_policy

    rules = read_policy(policy)
    from training.mlflow.promotion import promote as promote_version
    from training.mlflow.registry import open_registry

    console = Console(is_json=is_json)
    promotion = promote_version(
        open_registry(tracking, [f"models:/{model}"]),
        model,
        version,
        lake=None if lake is None else Lake.at(lake),
        dataset=dataset,
        policy=rules,
        is_dry_run=is_dry_run,
        say=console.say,
    )
    candidate, decision = promotion.candidate, promotion.decision
    verb = "would be" if is_dry_run else "is"
    verdict = f"{candidate.uri} {verb} {'' if decision.is_promoted else 'not '}the champion"
    console.summarise([verdict, *(f"  {reason}" for reason in decision.reasons)], promotion.to_json())
    if not decision.is_promoted:
        raise GateError(f"{candidate.uri} was not promoted: {'; '.join(decision.reasons)}")


def approve(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as challenger.")],
    by: Annotated[str, typer.Option(metavar="WHO", help="Name of the person who approves.")],
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Approve a version for promotion, where the policy asks for that; its next promotion moves the alias."""
    from training.mlflow.history import approve as approve_version
    from training.mlflow.registry import open_registry

    found = approve_version(open_registry(tracking, [f"models:/{model}"]), model, version, by=by)
    values = {"model": found.name, "version": found.version, "approved_by": by}
    Console(is_json=is_json).summarise([f"{found.uri} is approved by {by}"], values)


def promotions(
    name: Annotated[str, typer.Argument(help="Registered model.")],
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write them to this file as CSV.")] = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """List who was champion when, by which decision, and on which data."""
    from training.mlflow.history import championships, lines, to_csv
    from training.mlflow.registry import open_registry

    found = championships(open_registry(tracking, [f"models:/{name}"]), name)
    if csv is not None:
        csv.write_text(to_csv(found), encoding="utf-8", newline="")
    shown = lines(found) if found else [f"{name} never had a champion that was promoted"]
    Console(is_json=is_json).summarise(shown, {"promotions": [asdict(each) for each in found]})


def rollback(
    model: options.Model,
    champion: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="Only if this version is the champion.")
    ] = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Make the previous champion the champion again; exit status 1 where there is none."""
    from training.mlflow.promotion import rollback as roll_back
    from training.mlflow.registry import open_registry

    restored, replaced = roll_back(open_registry(tracking, [f"models:/{model}"]), model, champion=champion)
    line = f"{restored.uri} is the champion again, in place of version {replaced}"
    values = {"model": restored.name, "version": restored.version, "champion_before": replaced}
    Console(is_json=is_json).summarise([line], values)


def copy(
    model: options.Model,
    version: Annotated[str, typer.Option(help="Its version, or an alias such as champion.")],
    to: Annotated[str, typer.Option(metavar="URI", help="MLflow's address of the other registry.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Its name there; the same by default.")
    ] = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Copy a version with its run to another registry, such as staging's to production's: the challenger there."""
    from training.mlflow.copying import copy_version
    from training.mlflow.registry import open_registry
    from training.mlflow.runs import tracking_uri

    console = Console(is_json=is_json)
    source, target = open_registry(tracking, [f"models:/{model}"]).tracking_uri, tracking_uri(to)
    done = copy_version(source, model, version, to=target, new_name=name, say=console.say)
    verb = "is a copy" if done.is_new else "has been a copy before"
    lines = [f"{done.version.uri} {verb} of {done.copied_from}", f"sha256 {done.digest}"]
    console.summarise(lines, done.to_json())


def relocate(tracking: options.Tracking = None, is_json: options.Json = False) -> None:
    """Mend a store of runs and models whose folder was moved or copied: its paths lead to the new place."""
    from training.mlflow.moving import relocate as mend
    from training.mlflow.runs import tracking_uri

    uri = tracking_uri(tracking)
    was, paths = mend(uri)
    Console(is_json=is_json).summarise(
        [f"{paths} paths of {uri} lead here, not to {was}"], {"was": was, "paths": paths}
    )


def serve(
    model: Annotated[
        str,
        typer.Option(
            help="models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), runs:/RUN/model or a folder."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; who reaches it is answered.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: one that is free.")] = 5050,
    calibration: options.Calibration = None,
    tracking: options.Tracking = None,
    is_json: options.Json = False,
) -> None:
    """Answer documents with their links over HTTP, until interrupted.

    A document is given as the model reads it: its sentences, and the vectors of the extractors it was trained on, or
    its pictures; `multilink link --input` takes raw documents.
    """
    from training.mlflow.serving import run_serve

    announce = Console(is_json=is_json).summarise
    run_serve(model=model, host=host, port=port, calibration_path=calibration, tracking=tracking, announce=announce)


def _summarise(console: Console, lines: Sequence[str], values: Mapping[str, Any], page: Path | None) -> None:
    """Print a summary, and where its page is."""
    shown = {} if page is None else {"report": str(page)}
    console.summarise([*lines, *(f"report: {path}" for path in shown.values())], {**values, **shown})


def _check(
    command: str, given: Mapping[str, object], *, needed: Sequence[str] = (), refused: Sequence[str] = ()
) -> None:
    """Raise a UsageError where options do not go together."""
    if missing := [name for name in needed if not given[name]]:
        raise UsageError(f"{command}: expected {', '.join(missing)} as well")
    if unwanted := [name for name in refused if given[name]]:
        raise UsageError(f"{command}: expected no {', '.join(unwanted)}")


def _items(text: str, option: str) -> list[str]:
    """Return what an option lists, separated by commas."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise UsageError(f"{option} {text!r}: expected at least one name")
    return items
