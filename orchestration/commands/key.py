from pathlib import Path
from typing import Annotated

import typer

from orchestration.commands import options


def command(
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="MULTILINK_KEY",
            help="File of the private key; by default multilink/key.pem in your folder of settings.",
        ),
    ] = None,
) -> options.Summaries:
    """Make a key: what you promote, approve and roll back is signed with it from now on.

    The public key lies beside it, with the ending .pub.pem. Give that to those who verify champions.
    """
    from training.promotions.keys import key_path, make_key, public_path

    private = to or key_path()
    public = make_key(private)
    lines = [f"private key {private}: keep it to yourself", f"public key {public_path(private)}: give it to others"]
    values = {"private": str(private), "public": str(public_path(private)), "key": public.keyid}
    yield [*lines, f"known as {public.keyid}"], values
