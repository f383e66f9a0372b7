from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from orchestration.commands import options
from schemas.duplicates import DUPLICATE_SCHEMA
from schemas.lake import Folder, Lake
from schemas.manifest import read_manifest, table_parts


def command(
    reference: options.Reference,
    lake: options.LakePath,
    output: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("duplicates.html"),
) -> options.Summaries:
    """Write a page of a version's clusters of near-duplicate images, side by side."""
    from pipelines.card.duplicates import duplicates_page

    home = Lake.at(lake)
    manifest, folder = read_manifest(home, reference)
    rows = pa.concat_tables([DUPLICATE_SCHEMA.empty_table(), *table_parts(manifest, folder, "duplicates")])
    name = f"{manifest.dataset}@{manifest.version}"
    Folder(str(output.parent)).write(output.name, duplicates_page(rows, home, title=name).encode())
    clusters = len(rows.column("cluster").unique())
    values = {"dataset": name, "clusters": clusters, "images": rows.num_rows, "page": str(output)}
    yield [f"{name}: {rows.num_rows} images in {clusters} clusters: {output}"], values
