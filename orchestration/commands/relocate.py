from orchestration.commands import options


def command(tracking: options.Tracking = None) -> options.Summaries:
    """Repair a store of runs and models whose folder was moved or copied: its paths are changed to the new folder."""
    from training.mlflow.moving import relocate
    from training.mlflow.runs import tracking_uri

    uri = tracking_uri(tracking)
    was, paths = relocate(uri)
    yield [f"{paths} paths of {uri} were changed; the old folder was {was}"], {"was": was, "paths": paths}
