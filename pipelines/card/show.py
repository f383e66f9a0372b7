"""A data set version in words: what `datasets show` and the end of a build print, and its failures by host.

A row of a table of failures is an image of a document, or a page.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from textwrap import shorten
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import Split
from schemas.failures import TRANSIENT, Failure, Reason, Stage
from schemas.lake import Folder
from schemas.manifest import Manifest, table_parts
from schemas.raw import retrieval_tables

SHOWN = 20  # pairs of a host and a reason
_ADDRESSED = frozenset(
    {
        Reason.NOT_FOUND, Reason.FORBIDDEN, Reason.TOO_LARGE, Reason.TOO_MANY_REDIRECTS, Reason.NOT_AN_IMAGE,
        Reason.REMOVED_IMAGE, Reason.ROBOTS_DENIED, Reason.AI_TXT_DENIED, Reason.ROBOTS_TAG, Reason.ROBOTS_META,
        Reason.TDM_RESERVED, Reason.USAGE_DENIED,
    }
)  # fmt: skip
_HOST = r"^(?:https?://)(?P<host>[^/\s:?#|]+)"  # a message begins with the address it is about
_BARE_HOST = r"^(?:https?://)?(?P<host>[^/\s:?#|]+)"  # or, where no host was reached, with its name


def failures_by_host(parts: Iterable[pa.Table]) -> Counter[tuple[str, str]]:
    """Return how many rows each host and reason has in tables of failures; rows of local files are left out."""
    counts = Counter[tuple[str, str]]()
    for part in parts:
        for reasons, form in ((_ADDRESSED, _HOST), (TRANSIENT, _BARE_HOST)):
            rows = part.filter(pc.is_in(part.column("reason"), value_set=pa.array(sorted(reasons), pa.string())))
            found = pc.extract_regex(rows.column("message"), form).to_pylist()
            pairs = zip(found, rows.column("reason").to_pylist(), strict=True)
            counts.update((match["host"], reason) for match, reason in pairs if match is not None)
    return counts


def most_frequent(failures: Mapping[tuple[str, str], int]) -> list[tuple[str, str, int]]:
    """Return (host, reason, rows) of the most frequent, at most SHOWN; equal ones by name."""
    ordered = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return [(host, reason, count) for (host, reason), count in ordered[:SHOWN]]


def host_lines(failures: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the most frequent failures by host as aligned lines; none where there are none."""
    lines = [f"{host:32} {reason:20} {count:>8}" for host, reason, count in most_frequent(failures)]
    return [f"{'host':32} {'reason':20} {'failures':>8}", *lines] if lines else []


MESSAGE_WIDTH = 160
_VARYING = re.compile(r"\w+://\S+|'[^']*'|\"[^\"]*\"|\b[0-9a-f]{12,}\b|\d+(?:\.\d+)?")  # of a message
_WIDTHS = (10, 20, 18, 10, 10, 14)  # of the columns of splits
_MOMENT = "%Y-%m-%d %H:%M:%SZ"


def describe(manifest: Manifest, folder: Folder) -> list[str]:
    """Return a version's statistics, stages, failures and extractors as aligned lines."""
    lost = table_parts(manifest, folder, "failures")
    return [
        f"{manifest.dataset}@{manifest.version}",
        f"  {folder.uri}",
        "",
        *split_lines(manifest),
        "",
        *stage_lines(manifest),
        "",
        *(explain_failures(manifest, folder.uri, lost) or ["no failure"]),
        "",
        *feature_lines(manifest),
        *copy_lines(manifest),
        *leak_lines(manifest),
    ]


def explain_failures(manifest: Manifest, path: str, lost: Iterable[pa.Table]) -> list[str]:
    """Return each reason with its count, its commonest message and one record; then where every row is.

    Args:
        manifest: of a version, or the draft of one of which no document is left.
        path: of the version's folder.
        lost: its tables of failures.
    """
    lines, messages = list[str](), commonest_messages(lost)
    for reason, count in manifest.failures.items():
        lines.append(f"{reason:20} {count:>8}")
        if reason in messages:
            times, record, message = messages[reason]
            said = shorten(one_line(f"{record}: {message or 'no message'}"), MESSAGE_WIDTH, placeholder=" ...")
            lines.append(f"{'':20} {times:>8} times: {said}")
    return [*lines, f"all failures: {path}/failures"] if lines else []


def commonest_messages(lost: Iterable[pa.Table]) -> dict[str, tuple[int, str, str]]:
    """Return of each reason how many rows have its most frequent message, the smallest of their records, its message.

    Messages that differ in numbers, names in quotes or addresses alone are one. Of equally frequent ones the one whose
    record is smallest counts.
    """
    times, shown = Counter[tuple[str, str]](), dict[tuple[str, str], tuple[str, str]]()
    for failure in (Failure(**row) for part in lost for row in part.to_pylist()):
        kind, example = (str(failure.reason), _VARYING.sub("#", failure.message)), (failure.where, failure.message)
        times[kind] += 1
        shown[kind] = min(shown.get(kind, example), example)
    found = dict[str, tuple[int, str, str]]()
    for kind in sorted(times, key=lambda kind: (-times[kind], shown[kind])):
        found.setdefault(kind[0], (times[kind], *shown[kind]))
    return found


def failure_rows(
    manifest: Manifest, folder: Folder, *, reason: str | None, stage: str | None, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the first failure rows of a version, perhaps of one reason or stage, and how many there are."""
    rows: list[dict[str, Any]] = []
    total = 0
    for part in table_parts(manifest, folder, "failures"):
        for column, wanted in (("reason", reason), ("stage", stage)):
            part = part if wanted is None else part.filter(pc.equal(part.column(column), wanted))  # noqa: PLW2901
        total += part.num_rows
        rows += part.slice(0, limit - len(rows)).to_pylist()
    return rows, total


def one_line(text: str) -> str:
    """Return what a host or a file said in a form that a terminal shows and does not obey."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))


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
    tables = [table.select(["kind", "retrieved"]) for table in retrieval_tables(folder)]
    if not tables:
        return []
    found = pa.concat_tables(tables).group_by("kind").aggregate([("retrieved", way) for way in ("count", "min", "max")])
    return [
        f"fetched: {kind:9}{count:>9}  {first:{_MOMENT}} to {last:{_MOMENT}}"
        for kind, count, first, last in sorted(tuple(row.values()) for row in found.to_pylist())
    ]


def copy_lines(manifest: Manifest) -> list[str]:
    """Return how many copies their vectors showed, and how many images earlier versions have, where that was asked."""
    found = manifest.notes.get("near_copies")
    return [f"near copies by vectors: {found['images']} images in {found['clusters']} clusters"] if found else []


def leak_lines(manifest: Manifest) -> list[str]:
    """Return what splits share with one another, a line a kind and pair of splits; none where they share nothing."""
    return [
        f"leak between splits ({row['kind']}): {row['keys']} of {row['split']}, in {row['documents']} documents, are "
        f"also in {row['other_split']}"
        for row in manifest.notes.get("leaks", ())
    ]


def split_lines(manifest: Manifest) -> list[str]:
    """Return the row of Hessel 2019's table 1 for each split."""
    titles = ("documents", "sentences of each", "images of each", "images", "distinct", "linked pairs")
    lines = ["split " + "".join(f"{title:>{width}}" for title, width in zip(titles, _WIDTHS, strict=True))]
    for split in Split:
        row = manifest.splits[split]
        cells = (
            row.documents,
            f"{row.median_sentences:g}, {row.mean_sentences:.1f}, {row.max_sentences}",
            f"{row.median_images:g}, {row.mean_images:.1f}, {row.max_images}",
            row.images,
            row.unique_images,
            "unknown" if row.density is None else f"{100 * row.density:.1f}%",
        )
        lines.append(f"{split:6}" + "".join(f"{cell!s:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)))
    return [*lines, "sentences and images of each document: median, mean, maximum"]


def stage_lines(manifest: Manifest) -> list[str]:
    """Return what entered each stage and what became of it."""
    fields = ("in", "out", "rejected", "failed")
    rows = [(stage, manifest.stages[stage]) for stage in Stage if stage in manifest.stages]
    return [
        f"{'stage':10}" + "".join(f"{field:>10}" for field in fields),
        *(f"{stage:10}" + "".join(f"{row[field]:>10}" for field in fields) for stage, row in rows),
    ]
