from typing import Annotated

import typer

from orchestration.commands import options
from schemas.lake import Lake


def command(
    version: options.Version,
    target: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder or URI to write to: empty, or an earlier export.")
    ],
    form: Annotated[str, typer.Option("--to", metavar="FORMAT", help="mmc4, obelics, webdataset, hf or lance.")],
    *,
    say: options.Progress,
) -> options.Summaries:
    """Write a version, pictures included, in a format that other projects read, with a card."""
    from pipelines.exports.export import export_version

    _, manifest, folder = version()
    export = export_version(manifest, folder, Lake.at(target).root, form=form, say=say)
    size = sum(entry.bytes for entry in export.files)
    line = f"{export.dataset}@{export.version} as {form}: {len(export.files)} files, {size / 1e6:.1f} MB: {target}"
    yield [line], export.to_json() | {"path": target}
