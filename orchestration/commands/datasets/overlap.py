from dataclasses import asdict

from orchestration.commands import options
from schemas.lake import Lake
from schemas.manifest import read_manifest


def command(first: options.Reference, second: options.Reference, lake: options.LakePath) -> options.Summaries:
    """Count what two versions share: ids, addresses and texts of documents, contents and addresses of images."""
    from pipelines.card.changes import overlaps

    home = Lake.at(lake)
    (one, at_one), (two, at_two) = read_manifest(home, first), read_manifest(home, second)
    found = overlaps(one, two, (at_one, at_two))
    lines = [f"{'':20} {'first alone':>12} {'both':>10} {'second alone':>13}"]
    lines += [f"{row.thing:20} {row.first:12,} {row.both:10,} {row.second:13,}" for row in found]
    yield lines, {"first": one.reference, "second": two.reference, "overlaps": [asdict(row) for row in found]}
