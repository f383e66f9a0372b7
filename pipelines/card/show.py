"""A data set version in words: what `datasets show` and the end of a build print."""

from __future__ import annotations

from datetime import datetime

import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest

_MOMENT = "%Y-%m-%d %H:%M:%SZ"


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


def retrieval_lines(folder: Folder) -> list[str]:
    """Return when what a version was made of was fetched: a line a kind, none where nothing was.

    Args:
        folder: `Lake.retrievals` of the version.
    """
    counts: dict[str, int] = {}
    first: dict[str, datetime] = {}
    last: dict[str, datetime] = {}
    for name in folder.files():
        with folder.open(name) as stream:
            rows = pq.read_table(stream, columns=["kind", "retrieved"]).to_pylist()
        for row in rows:
            kind, moment = row["kind"], row["retrieved"]
            counts[kind] = counts.get(kind, 0) + 1
            first[kind] = min(first.get(kind, moment), moment)
            last[kind] = max(last.get(kind, moment), moment)
    return [
        f"fetched: {kind:9}{counts[kind]:>9}  {first[kind]:{_MOMENT}} to {last[kind]:{_MOMENT}}"
        for kind in sorted(counts)
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
