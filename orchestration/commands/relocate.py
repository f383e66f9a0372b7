from typing import Annotated

import typer

from orchestration.commands import options
from schemas.errors import UsageError
from schemas.lake import Lake


def command(
    old: Annotated[str, typer.Option("--from", metavar="OLD", help="Path or URI that a moved lake had.")] = "",
    lake: Annotated[str, typer.Option("--lake", metavar="NEW", help="Path or URI of that lake now.")] = "",
    tracking: options.Tracking = None,
) -> options.Summaries:
    """Repair a store of runs and models: its folder was moved or copied, or with --from and --lake the lake was.

    The paths in the store are changed to its new folder, or the addresses of the lake to the new one.
    """
    from training.mlflow.stored import tracking_uri

    uri = tracking_uri(tracking)
    if bool(old) != bool(lake):
        raise UsageError("relocate: expected both --from OLD and --lake NEW for a lake that was moved, or neither")
    if lake:
        from training.mlflow.champions import relocate_lake
        from training.mlflow.loading import open_registry

        home = options.known_lake(lake)
        tags = relocate_lake(open_registry(tracking), old, home)
        yield [f"{tags} addresses of {Lake.at(old).root.uri} in {uri} are {home.root.uri} now"], {"tags": tags}
        return
    from training.mlflow.moving import relocate

    was, paths = relocate(uri)
    yield [f"{paths} paths of {uri} were changed; the old folder was {was}"], {"was": was, "paths": paths}
