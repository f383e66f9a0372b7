from orchestration.commands import options


def command(
    lake: options.LakePath,
    named: options.Named = None,
    listed: options.TakedownList = "",
    tracking: options.Tracking = None,
) -> options.Summaries:
    """List every version, index, folder of links and model that holds a document, a page or an image."""
    from orchestration.workflows.takedowns import find_held, read_entries

    home = options.known_lake(lake)
    held = find_held(home, read_entries(named, listed), tracking)
    yield held.lines(), held
