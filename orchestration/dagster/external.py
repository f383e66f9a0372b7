"""The external process of an asset, as Dagster Pipes calls it: it does the asset's steps and reports what they made.

    extras            {"steps": [...]}, each as `orchestration.steps` reads it
    log               each line of progress; it is on the run's page at once
    materialization   of each asset, with its metadata
    custom message    of an expected error: {"error": its line, "is_final": whether another attempt is of no use}

An error ends the process as it ends a command, and Dagster's page shows its class and its trace. Nothing here depends
on Dagster itself: `dagster-pipes` is a module of its own, which a cluster's workers have as well.
"""

import os
from collections.abc import Mapping
from typing import Any

from dagster_pipes import (
    DAGSTER_PIPES_CONTEXT_ENV_VAR,
    DAGSTER_PIPES_MESSAGES_ENV_VAR,
    PipesContext,
    open_dagster_pipes,
)

from orchestration.__main__ import main
from orchestration.steps import FINAL, Step, build, compare, from_json, summary_of
from schemas.failures import Stage
from schemas.messages import MultilinkError, paced, without_passwords

STEPS, ERROR, IS_FINAL = "steps", "error", "is_final"
VERSION, LEAD = "version", "lead_over_nostruct"
Metadata = dict[str, Any]
# asset -> stages of the build whose counts are its metadata
COUNTED = {
    "documents": (Stage.SOURCES, Stage.DOCUMENTS, Stage.RULES),
    "images": (Stage.IMAGES,),
    "duplicates": (Stage.DEDUPE,),
    "features": (Stage.FEATURES,),
    "shards": (Stage.SHARDS,),
}


def report_steps(*_: object, **__: object) -> None:
    """Do the steps that Dagster waits for, and report what they made."""
    with open_dagster_pipes() as pipes:
        for name in (DAGSTER_PIPES_CONTEXT_ENV_VAR, DAGSTER_PIPES_MESSAGES_ENV_VAR):
            os.environ.pop(name, None)  # not for the processes that this one starts
        try:
            report([from_json(each) for each in pipes.get_extra(STEPS)], pipes)
        except MultilinkError as problem:
            pipes.report_custom_message({ERROR: str(problem), IS_FINAL: isinstance(problem, FINAL)})
            raise


def report(steps: list[Step], pipes: PipesContext) -> None:
    """Do the steps of an asset, one after the other, and report the asset with what each of them made."""
    metadata: Metadata = {}
    for step in steps:
        made = summary_of(step, paced(lambda line: pipes.log.info(without_passwords(line))))
        if step.func is build:
            for asset in COUNTED:
                pipes.report_asset_materialization(stage_metadata(asset, made), made["version"], asset)
            return
        metadata |= shown({LEAD: made["models"][1]["minus_first"]} if step.func is compare else made)
    pipes.report_asset_materialization(metadata)


def shown(summary: Mapping[str, Any]) -> Metadata:
    """Return a summary as metadata: a score is a number, which Dagster's page draws over time, and its interval."""
    found: Metadata = {}
    for name, value in summary.items():
        if isinstance(value, dict) and "mean" in value:
            mean, *interval = (round(value[each], 2) for each in ("mean", "low", "high"))
            found |= {name: mean, f"{name}_interval": interval}
        elif name != "measures":  # hundreds, which the report has
            found[name] = {"raw_value": value, "type": "json"} if isinstance(value, dict) else value
    return found


def stage_metadata(asset: str, summary: Mapping[str, Any]) -> Metadata:
    """Return the metadata of a stage's asset: the version, its folder, and what went in and out."""
    counts = {name: row for name, row in summary["stages"].items() if name in COUNTED[asset]}
    found: Metadata = {
        VERSION: summary["version"],
        "path": {"raw_value": summary["path"], "type": "path"},
        "reused": summary["reused"],
        "counts": table("stage", counts),
    }
    for row in counts.values():
        found |= {name: row[name] for name in ("in", "out", "rejected", "failed")}
    if asset == "shards":
        splits = summary["splits"]
        found["splits"] = table("split", splits)
        found["dagster/row_count"] = sum(int(row["documents"]) for row in splits.values())
    if asset == "documents":
        found["failures"] = table("reason", {name: {"records": each} for name, each in summary["failures"].items()})
    return found


def table(head: str, rows: Mapping[str, Mapping[str, int]]) -> Metadata:
    """Return rows of numbers as a table of Dagster's page; `head` is the column of their names."""
    numbers = dict.fromkeys(number for row in rows.values() for number in row)
    schema = [{"name": head, "type": "string"}, *({"name": number, "type": "int"} for number in numbers)]
    records = [{head: name, **row} for name, row in rows.items()]
    return {"raw_value": {"records": records, "schema": schema}, "type": "table"}


if __name__ == "__main__":
    main(report_steps)
