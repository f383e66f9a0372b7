"""The commands that carry versions elsewhere: export, replicate, subset."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from pipelines.options import JsonOption, LakeOption
from schemas.console import Console
from schemas.lake import Lake
from schemas.manifest import read_manifest


def register(datasets_app: typer.Typer) -> None:
    """Add this module's commands to those of data sets."""
    datasets_app.command("export")(export_dataset)
    datasets_app.command("replicate")(replicate_dataset)
    datasets_app.command("subset")(subset_dataset)


def export_dataset(
    reference: Annotated[str, typer.Argument(help="NAME[@VERSION]")],
    target: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder or URI to write to: empty, or an earlier export.")
    ],
    lake: LakeOption,
    form: Annotated[str, typer.Option("--to", metavar="FORMAT", help="mmc4, obelics, webdataset, hf or lance.")],
    is_json: JsonOption = False,
) -> None:
    """Write a version, pictures included, in a format that other projects read, with a card."""
    from pipelines.exports.export import export_version

    console = Console(is_json=is_json)
    manifest, folder = read_manifest(Lake.at(lake), reference)
    export = export_version(manifest, folder, Lake.at(target).root, form=form, say=console.say)
    size = sum(entry.bytes for entry in export.files)
    line = f"{export.dataset}@{export.version} as {form}: {len(export.files)} files, {size / 1e6:.1f} MB: {target}"
    console.summarise([line], export.to_json() | {"path": target})


def replicate_dataset(
    reference: Annotated[str, typer.Argument(help="NAME: all its versions; or NAME@VERSION")],
    target: Annotated[str, typer.Argument(metavar="LAKE", help="Path or URI of the other lake.")],
    lake: LakeOption,
    is_json: JsonOption = False,
) -> None:
    """Copy versions to a second lake, each byte checked; called again, it copies what is missing."""
    from pipelines.exports.replicate import replicate

    console = Console(is_json=is_json)
    replicas = replicate(Lake.at(lake), reference, Lake.at(target), say=console.say)
    name = reference.partition("@")[0]
    lines = [
        f"{name}@{each.version}: {each.copied} files copied, {each.bytes / 1e6:.1f} MB; {each.there} were there"
        for each in replicas
    ]
    values = {"dataset": name, "lake": target, "versions": [dataclasses.asdict(each) for each in replicas]}
    console.summarise(lines, values)


def subset_dataset(
    reference: Annotated[str, typer.Argument(help="NAME[@VERSION]")],
    lake: LakeOption,
    share: Annotated[float, typer.Option(help="Of the documents, by their ids: 0.1 is within 0.2.")] = 1.0,
    where: Annotated[
        str, typer.Option(help="Condition, such as 'language == \"en\" and sentences >= 5 and links is not None'.")
    ] = "",
    min_coherence: Annotated[
        float, typer.Option(help="Least coherence, 0 to 1, by the links that a model predicted (--links).")
    ] = 0.0,
    links: Annotated[
        str, typer.Option(metavar="DIR", help="Folder or URI that `link --dataset` wrote links of the version to.")
    ] = "",
    is_json: JsonOption = False,
) -> None:
    """Make a version of a part of another version's documents, with their images, features and splits."""
    from pipelines.exports.coherence import read_coherence
    from pipelines.exports.subset import Selection, subset_lines, write_subset

    console, home = Console(is_json=is_json), Lake.at(lake)
    manifest, folder = read_manifest(home, reference)
    name = f"{manifest.dataset}@{manifest.version}"
    coherence = read_coherence(Lake.at(links).root, name) if links else None
    selection = Selection(share=share, where=where, min_coherence=min_coherence, coherence=coherence)
    subset = write_subset(home, manifest, folder, selection, say=console.say)
    values = dataclasses.asdict(subset) | {"path": home.dataset(subset.dataset, subset.version).uri}
    console.summarise(subset_lines(subset, manifest), values)
