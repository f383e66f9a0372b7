"""A data set version in words: what `datasets show` and the end of a build print."""

from __future__ import annotations

from schemas.documents import Split
from schemas.manifest import Manifest


def describe(manifest: Manifest, path: str) -> list[str]:
    """Return a version's statistics, stages, failures and extractors as aligned lines."""
    return [
        f"{manifest.dataset}@{manifest.version}",
        f"  {path}",
        "",
        *split_lines(manifest),
        "",
        *stage_lines(manifest),
        "",
        *(f"{reason:20} {count:>8}" for reason, count in manifest.failures.items()),
        *([] if manifest.failures else ["no failure"]),
        "",
        *feature_lines(manifest),
    ]


def feature_lines(manifest: Manifest) -> list[str]:
    """Return the feature columns of images and sentences, with what made each."""
    return [
        f"{thing:8} {column.column:32} {column.describe():24} {column.fingerprint[:16]}".rstrip()
        for table, thing in (("images", "image"), ("documents", "sentence"))
        for column in manifest.columns(table)
    ]


def split_lines(manifest: Manifest) -> list[str]:
    """Return the row of Hessel 2019's table 1 for each split."""
    titles = ("documents", "n median", "n mean", "n max", "m median", "m mean", "m max", "images", "unique", "density")
    lines = ["split " + "".join(f"{title:>10}" for title in titles)]
    for split in Split:
        row = manifest.splits[split]
        cells = (
            row.documents,
            f"{row.median_sentences:g}",
            f"{row.mean_sentences:.1f}",
            row.max_sentences,
            f"{row.median_images:g}",
            f"{row.mean_images:.1f}",
            row.max_images,
            row.images,
            row.unique_images,
            "unknown" if row.density is None else f"{100 * row.density:.1f}%",
        )
        lines.append(f"{split:6}" + "".join(f"{cell!s:>10}" for cell in cells))
    return lines


def stage_lines(manifest: Manifest) -> list[str]:
    """Return what entered each stage and what became of it."""
    lines = [f"{'stage':10}{'in':>10}{'out':>10}{'rejected':>10}{'failed':>10}"]
    for stage in ("sources", "documents", "images", "dedupe", "features", "shards"):
        row = manifest.stages.get(stage, {})
        lines.append(f"{stage:10}" + "".join(f"{row.get(key, 0):>10}" for key in ("in", "out", "rejected", "failed")))
    return lines
