from orchestration.commands import options


def command(lake: options.LakePath, store: options.Store = "") -> options.Summaries:
    """Show which of two models editors preferred in blind comparisons; it may be looked at after each article."""
    from newsroom.decisions.comparison import comparisons
    from newsroom.decisions.log import opened_log

    with opened_log(lake, store) as log:
        found = comparisons(log)
    lines = [line for each in found for line in each.lines()]
    values = {"comparisons": found}
    yield lines or ["no choice was made in a blind comparison"], values
