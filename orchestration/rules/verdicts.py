"""The rules of the blocking checks: from a version's manifest, or from scores, to a verdict with its numbers.

Plain functions of manifests and numbers: a build notes what they need, and no check reads a column of a version that
notes it. `STAGE_CHECKS` names the asset that each guards.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from orchestration.config import CheckSettings
from schemas.duplicates import LeakKind
from schemas.failures import Stage
from schemas.lake import Folder
from schemas.manifest import Manifest, verify
from schemas.parts import vector_ranges

PROBLEMS_SHOWN = 10
_KEEP_ALL = "keep-all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a check: passed or not, why in one line, and the numbers behind it."""

    passed: bool
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOnDisk:
    """A version to be judged: its manifest and folder, the sound version before it, and the bounds."""

    manifest: Manifest
    folder: Folder
    before: Manifest | None
    bounds: CheckSettings


def manifest_verifies(version: VersionOnDisk) -> Verdict:
    """Check whether the files of a version are there, in the sizes that its manifest says: readers check the bytes."""
    problems = list(islice(verify(version.manifest, version.folder, reads_bytes=False), PROBLEMS_SHOWN))
    files = len(version.manifest.files)
    text = f"{files} files are there, with the sizes of the manifest" if not problems else "; ".join(problems)
    return Verdict(passed=not problems, text=text, numbers={"files": files, "problems": len(problems)})


def counts_in_bounds(version: VersionOnDisk) -> Verdict:
    """Check whether a version has about as many documents as the sound one before it, and every split has some."""
    now = _documents(version.manifest)
    filled = () if version.before is None else {name for name, row in version.before.splits.items() if row.documents}
    empty = [name for name, row in version.manifest.splits.items() if not row.documents and name in filled]
    if empty:
        return Verdict(passed=False, text=f"no document is left in {', '.join(empty)}", numbers={"documents": now})
    if version.before is None:
        return Verdict(passed=now > 0, text=f"{now} documents; the first version", numbers={"documents": now})
    before = _documents(version.before)
    share = now / before if before else float("inf")
    least, most = version.bounds.least_share, version.bounds.most_share
    text = f"{now} documents, {before} before: {share:.2f} times as many, expected {least:g} to {most:g}"
    return Verdict(passed=least <= share <= most, text=text, numbers={"documents": now, "documents_before": before})


def within_failure_budget(version: VersionOnDisk, stages: Sequence[Stage]) -> Verdict:
    """Check whether no stage failed to handle more than its share of what it read."""
    budget = version.bounds.max_failure_share
    shares = {
        stage: row["failed"] / row["in"]
        for stage in stages
        if (row := version.manifest.stages.get(stage)) is not None and row["in"]
    }
    listed = ", ".join(f"{stage} {share:.1%}" for stage, share in shares.items()) or "nothing was read"
    return Verdict(
        passed=all(share <= budget for share in shares.values()),
        text=f"failed: {listed}; at most {budget:.0%} may",
        numbers={f"{stage}_failed_share": share for stage, share in shares.items()},
    )


# A subset, and what forgetting left, has other documents than the build that was counted.
_UNCOUNTED = Verdict(passed=False, text="no build counted this version's documents: build the data set again")


def duplicate_free(version: VersionOnDisk) -> Verdict:
    """Check whether no two documents show near-duplicate pictures, by the counts of the build.

    Of a data set whose policy keeps duplicates the check only counts them.
    """
    numbers = version.manifest.notes.get("near_duplicates")
    if numbers is None:
        return _UNCOUNTED
    text = f"{numbers['pictures']} pictures had a near-duplicate, {numbers['left']} were kept"
    if version.manifest.config["dedupe"]["policy"] == _KEEP_ALL:
        return Verdict(passed=True, text=f"{text}; the policy keeps them", numbers=numbers)
    return Verdict(passed=not numbers["left"], text=text, numbers=numbers)


def leak_free(version: VersionOnDisk) -> Verdict:
    """Check whether no two splits share what they may not share; single sentences are only reported."""
    counts = version.manifest.notes.get("leaks")
    if counts is None:
        return _UNCOUNTED
    keys = {kind: sum(row["keys"] for row in counts if row["kind"] == kind) for kind in map(str, LeakKind)}
    refused = sum(keys[kind] for kind in version.bounds.refused_leaks)
    listed = ", ".join(f"{kind} {count}" for kind, count in keys.items() if count) or "nothing"
    return Verdict(passed=not refused, text=f"shared between splits: {listed}", numbers=keys)


def norms_are_sane(version: VersionOnDisk) -> Verdict:
    """Check whether every feature vector is finite, of a sane length, and not the same for everything."""
    least, most = version.bounds.least_norm, version.bounds.most_norm
    found = vector_ranges(version.manifest, version.folder)
    problems: list[str] = []
    for name, vectors in found.items():
        if vectors.not_finite:
            problems.append(f"{name}: {vectors.not_finite} of {vectors.count} vectors are not finite")
        elif vectors.least is not None and (vectors.least < least or (vectors.most or 0) > most):
            lengths = f"{vectors.least:g} to {vectors.most:g}"
            problems.append(f"{name}: {vectors.count} vectors of length {lengths}, expected {least:g} to {most:g}")
        elif vectors.is_constant:
            problems.append(f"{name}: all {vectors.count} vectors are the same")
    if not found:
        problems.append("there is no feature column")
    numbers = {
        key: value
        for name, vectors in found.items()
        for key, value in ((f"{name}_vectors", vectors.count), (f"{name}_mean_norm", vectors.mean))
    }
    text = "; ".join(problems) or ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
    return Verdict(passed=not problems, text=text, numbers=numbers)


# (asset, name of its check) -> the rule, and its description
STAGE_CHECKS: Mapping[tuple[str, str], tuple[Callable[[VersionOnDisk], Verdict], str]] = {
    ("documents", "failure_budget"): (
        partial(within_failure_budget, stages=(Stage.SOURCES, Stage.DOCUMENTS)),
        "No more than a share of the records could not be used.",
    ),
    ("documents", "counts_in_bounds"): (counts_in_bounds, "About as many documents as the sound version before."),
    ("images", "failure_budget"): (
        partial(within_failure_budget, stages=(Stage.IMAGES,)),
        "No more than a share of the images could not be fetched or read.",
    ),
    ("duplicates", "duplicate_free"): (duplicate_free, "No two documents show near-duplicate pictures."),
    ("features", "norms_are_sane"): (norms_are_sane, "Every vector is finite, of a sane length, and they differ."),
    ("shards", "manifest_verifies"): (manifest_verifies, "Every file exists with the size in the manifest."),
    ("shards", "leak_free"): (leak_free, "No picture and no whole text is in two splits."),
}


def better_than_nostruct(lead: Mapping[str, float] | None, *, score: str = "auc") -> Verdict:
    """Check whether a model is shown to be better than NoStruct: by the whole interval of their paired difference.

    Args:
        lead: `mean`, `low` and `high` of the model's score minus NoStruct's, in points; None: it was not compared.
        score: of what: AUC, or where documents are pairs, the reciprocal rank.
    """
    if lead is None:
        return Verdict(passed=False, text="no NoStruct model of this version was scored: nothing to compare with")
    numbers = f"{lead['mean']:+.2f} ({lead['low']:+.2f} to {lead['high']:+.2f}, paired)"
    text = f"{'AUC' if score == 'auc' else score} minus NoStruct's: {numbers}"
    return Verdict(passed=lead["low"] > 0, text=text, numbers=dict(lead))


def _documents(manifest: Manifest) -> int:
    return sum(row.documents for row in manifest.splits.values())
