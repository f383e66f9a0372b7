from pathlib import Path

import pyarrow as pa

from orchestration.commands import options
from schemas.duplicates import DUPLICATE_SCHEMA
from schemas.lake import Folder
from schemas.manifest import table_parts


def command(
    version: options.Version,
    output: options.HtmlFile = Path("duplicates.html"),
) -> options.Summaries:
    """Write a page of a version's clusters of near-duplicate images, side by side."""
    from pipelines.card.duplicates import duplicates_page

    home, manifest, folder = version()
    rows = pa.concat_tables([DUPLICATE_SCHEMA.empty_table(), *table_parts(manifest, folder, "duplicates")])
    Folder(str(output.parent)).write(output.name, duplicates_page(rows, home, title=manifest.reference).encode())
    clusters = len(rows.column("cluster").unique())
    values = {"dataset": manifest.reference, "clusters": clusters, "images": rows.num_rows, "page": str(output)}
    yield [f"{manifest.reference}: {rows.num_rows} images in {clusters} clusters: {output}"], values
