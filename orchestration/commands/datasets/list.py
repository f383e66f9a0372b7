from orchestration.commands import options


def command(lake: options.LakePath) -> options.Summaries:
    """List the data sets of a lake with their versions; `*` marks the latest."""
    home = options.known_lake(lake)
    found = {name: {"latest": home.latest(name), "versions": home.versions(name)} for name in home.dataset_names()}
    lines = [
        f"{name}@{version}{' *' if version == row['latest'] else ''}"
        for name, row in found.items()
        for version in row["versions"] or ()
    ]
    yield lines or [f"no data set in {home.root.uri}"], found
