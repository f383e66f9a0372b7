"""The jobs a person or a schedule starts, each on one data set: rebuild, train, promote, link, everything.

`everything` is the others in one run, from sources to links. Jobs run in one process each: a run's steps share what
was imported and loaded, and what is heavy has its own workers (Beam, Ray). Steps that do not depend on a failed one
are done all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from orchestration.config import NOSTRUCT, Settings
from orchestration.dagster.names import STAGES, model_key
from orchestration.rules.decisions import EVALUATION, LINKS, PROMOTION, TRAINED

REBUILD, TRAIN, PROMOTE, LINK, EVERYTHING = "rebuild", "train", "promote", "link", "everything"
_MEANING = {
    REBUILD: "Scrape or read the source and build a version of the data set, with its checks.",
    TRAIN: "Train every configured objective on the newest version.",
    PROMOTE: "Evaluate the newest models, and promote those the gate lets pass.",
    LINK: "Link the newest version with the champions.",
    EVERYTHING: "From sources to links: rebuild, train, evaluate, promote, link.",
}


def make_jobs(settings: Settings) -> Sequence[dg.JobDefinition | dg.UnresolvedAssetJobDefinition]:
    """Return the jobs."""
    stages = dg.AssetSelection.assets(*STAGES)
    selections = {
        REBUILD: stages,
        TRAIN: _kinds(settings, TRAINED),
        PROMOTE: _kinds(settings, EVALUATION, PROMOTION),
        LINK: _kinds(settings, LINKS),
        EVERYTHING: dg.AssetSelection.all(),
    }
    return [
        dg.define_asset_job(name, selection=selection, description=_MEANING[name])
        for name, selection in selections.items()
    ]


def _kinds(settings: Settings, *kinds: str) -> dg.AssetSelection:
    """Return the assets of some kinds; NoStruct is neither promoted nor used to link."""
    return dg.AssetSelection.assets(
        *(
            model_key(objective, kind)
            for objective in settings.objectives
            for kind in kinds
            if objective != NOSTRUCT or kind in (TRAINED, EVALUATION)
        )
    )
