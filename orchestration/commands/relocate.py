from orchestration.commands import options


def command(tracking: options.Tracking = None) -> options.Summaries:
    """Mend a store of runs and models whose folder was moved or copied: its paths lead to the new place."""
    from training.mlflow.moving import relocate
    from training.mlflow.runs import tracking_uri

    uri = tracking_uri(tracking)
    was, paths = relocate(uri)
    yield [f"{paths} paths of {uri} lead here, not to {was}"], {"was": was, "paths": paths}
