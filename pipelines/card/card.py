"""The data set card: a version's README.md, for people and for Hugging Face `datasets.load_dataset(<folder>)`.

Everything in it comes from the manifest, so that equal builds have equal cards: no clock time, no path of a machine.
`write_cards` puts it, and croissant.json, beside the shards and into the manifest.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.card.croissant import croissant
from pipelines.card.show import split_lines, stage_lines
from schemas.documents import Split
from schemas.features import FeatureColumn
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.versions import canonical_json

README = "README.md"
CROISSANT = "croissant.json"
TABLES = ("documents", "images")
# Hugging Face's size categories: documents below the bound, its name.
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
_ABOUT = {
    "cite": "image and text pairs of recipes with relations (Alikhani 2022)",
    "clue": "image and caption pairs with coherence relations (Alikhani 2022)",
    "dii-stress": "stories of VIST with distractor captions (Hessel 2019)",
    "diy": "Reddit DIY posts with their imgur albums, captions being the sentences (Hessel 2019)",
    "documents": "a user's own documents",
    "mscoco": "groups of COCO images with captions of true and of distracting images (Hessel 2019)",
    "multi-retrieval": "documents and image features as Hessel 2019 released them, without pixels",
    "news": "news articles with one image and texts of four roles (Liu 2020)",
    "rqa": "recipes of RecipeQA, steps being the sentences (Hessel 2019)",
    "story-dii": "VIST stories, descriptions of images in isolation (Hessel 2019)",
    "story-sis": "VIST stories, one sentence an image in sequence (Hessel 2019)",
    "wiki": "Wikipedia articles with their images, links unknown (Hessel 2019)",
}


def write_cards(folder: Folder, manifest: Manifest) -> Manifest:
    """Write README.md and croissant.json into a version's folder, and return its manifest with them listed.

    Both depend on the shards alone, so that writing them again changes nothing.
    """
    texts = {README: dataset_card(manifest), CROISSANT: croissant(manifest)}
    entries = [entry for entry in manifest.files if entry.path not in texts]
    for name, text in texts.items():
        data = text.encode()
        folder.write(name, data)
        entries.append(FileEntry(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=0))
    return dataclasses.replace(manifest, files=tuple(sorted(entries)))


def dataset_card(manifest: Manifest) -> str:
    """Return the text of a version's README.md."""
    sections = (
        _introduction(manifest),
        _statistics(manifest),
        _failures(manifest),
        _leaks(manifest),
        _features(manifest),
        _licence(),
        _making(manifest),
        _loading(manifest),
    )
    texts = ("\n".join(lines) for lines in sections)
    return "\n".join([_front_matter(manifest), *(f"{text}\n" for text in texts if text)])


def splits_of(manifest: Manifest, table: str) -> list[Split]:
    """Return the splits that have a part of a table: an empty one has no file, and no glob may name it."""
    return [split for split in Split if manifest.parts(table, split)]


def _front_matter(manifest: Manifest) -> str:
    """Return the YAML block that `load_dataset` reads: a configuration a table, a glob a split."""
    lines = ["---", f"pretty_name: {_quoted(manifest.dataset)}", "license: unknown"]
    lines += ["tags:", '- "multilink"', '- "image-text"', "size_categories:", f"- {_quoted(_size(manifest))}"]
    lines.append("configs:")
    for table in TABLES:
        splits = splits_of(manifest, table)
        if not splits:
            continue
        lines.append(f"- config_name: {table}")
        lines += ["  default: true"] if table == TABLES[0] else []
        lines.append("  data_files:")
        for split in splits:
            lines += [f"  - split: {split}", f"    path: {_quoted(f'{table}/{split}/*.parquet')}"]
    return "\n".join([*lines, "---", ""])


def _quoted(text: str) -> str:
    return canonical_json(text)  # a JSON string is a YAML one


def _size(manifest: Manifest) -> str:
    documents = sum(row.documents for row in manifest.splits.values())
    return next((name for bound, name in _SIZES if documents < bound), "n>10M")


def _introduction(manifest: Manifest) -> Iterator[str]:
    yield f"# {manifest.dataset}"
    yield ""
    yield f"Version `{manifest.version}`: {_ABOUT.get(manifest.dataset, 'documents of sentences and images')}."
    yield ""
    yield (
        "A document is an ordered list of sentences and an ordered list of images. `links` says which sentence goes "
        "with which image, as indices from 0; null means unknown, an empty list means known and none. Links are for "
        "evaluation: a model that links without supervision must not see those of its training documents."
    )
    yield ""
    yield (
        "`documents/<split>/` and `images/<split>/` hold parts of the same numbers: an images part has each image that "
        "its documents part refers to, once, by the SHA-256 of its original bytes."
    )


def _statistics(manifest: Manifest) -> Iterator[str]:
    yield "## Splits"
    yield ""
    yield (
        "n: sentences of a document; m: images of a document; unique: distinct images; density: linked pairs among all "
        "sentence-image pairs, averaged over documents (table 1 of Hessel 2019)."
    )
    yield ""
    yield from _block("text", split_lines(manifest))


def _failures(manifest: Manifest) -> Iterator[str]:
    yield "## What was left out"
    yield ""
    yield from _block("text", stage_lines(manifest))
    yield ""
    if not manifest.failures:
        yield "Nothing was rejected, and nothing failed."
        return
    yield "| reason | records, documents or images |"
    yield "|---|---:|"
    yield from (f"| {reason} | {count} |" for reason, count in sorted(manifest.failures.items()))
    yield ""
    yield "Each has a row in `failures/`, with its stage, its id and what was found."


def _leaks(manifest: Manifest) -> Iterator[str]:
    """Yield what the splits share, where the build looked (`notes.leaks`: rows of `LeakCount`)."""
    counts = manifest.notes.get("leaks")
    if counts is None:
        return
    yield "## Leaks between splits"
    yield ""
    if not counts:
        yield "No image, exact or near, and no text is shared between splits."
        return
    if manifest.config.get("splits", {}).get("on_leak") == "drop":
        yield "As found, before the documents of the weaker split were dropped for it (train before val before test)."
        yield ""
    yield "| kind | of split | in split | images or texts | documents |"
    yield "|---|---|---|---:|---:|"
    for row in counts:
        cells = (row[key] for key in ("kind", "split", "other_split", "keys", "documents"))
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _features(manifest: Manifest) -> Iterator[str]:
    yield "## Features"
    yield ""
    found = [
        f"- `{column.column}` of `{table}`: {column.describe()} per {thing}{_made_by(column)}"
        for table, thing in (("images", "image"), ("documents", "sentence"))
        for column in manifest.columns(table)
    ]
    yield from found or ["None."]


def _made_by(column: FeatureColumn) -> str:
    return f" (extractor {column.fingerprint[:16]})" if column.fingerprint else ""


def _licence() -> Iterator[str]:
    yield "## Licence"
    yield ""
    yield (
        "Texts and images belong to those who made them; this folder gives no right to them. The source and licence "
        "of each, where known, are in its row: `provenance.url` and `provenance.licence` of a document, `source` and "
        "`licence` of an image. A null licence means that it is not known, not that there is none. When each was "
        "fetched is no part of the version: the lake it was built in says so, in `retrievals/` beside `datasets/`."
    )


def _making(manifest: Manifest) -> Iterator[str]:
    yield "## How it was made"
    yield ""
    versions = ", ".join(f"{table} {version}" for table, version in sorted(manifest.schema_versions.items()))
    yield f"`multilink build {manifest.dataset}`, multilink {manifest.code_version}, schemas: {versions}."
    yield "The same inputs and settings give the same version with the same bytes. Settings:"
    yield ""
    yield from _block("text", _settings(manifest.config))


def _settings(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield `section.key = value` for every setting, as `--set` takes it."""
    for name, value in sorted(values.items()):
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name} = {canonical_json(value)}"


def _loading(manifest: Manifest) -> Iterator[str]:
    here, split = manifest.version, next(iter(splits_of(manifest, TABLES[0])), Split.TRAIN)
    yield "## How to read it"
    yield ""
    yield "From the folder above this one, without multilink:"
    yield ""
    yield from _block(
        "python",
        (
            "import datasets, duckdb, pyarrow.dataset",
            "",
            f'documents = pyarrow.dataset.dataset("{here}/documents/{split}").to_table()',
            f'documents = datasets.load_dataset("{here}", "documents", split="{split}")',
            f'images = datasets.load_dataset("{here}", "images", split="{split}")',
            'images = images.cast_column("jpeg", datasets.Image())',
            f"duckdb.sql(\"SELECT id, len(sentences), len(images) FROM '{here}/documents/{split}/*.parquet'\")",
        ),
    )


def _block(language: str, lines: Any) -> Iterator[str]:
    yield f"```{language}"
    yield from lines
    yield "```"
