from orchestration.commands import options
from schemas.lake import Lake
from schemas.manifest import diff, read_manifest


def command(old: options.Reference, new: options.Reference, lake: options.LakePath) -> options.Summaries:
    """Show what differs between two versions: settings, inputs, counts, files."""
    home = Lake.at(lake)
    found = list(diff(read_manifest(home, old)[0], read_manifest(home, new)[0]))
    yield found or ["no difference"], {"old": old, "new": new, "differences": found}
