"""The data set card: a version's README.md, for people and for Hugging Face `datasets.load_dataset(<folder>)`.

Everything in it comes from the manifest, so that equal builds have equal cards: no clock time, no path of a machine.
Its words are in `README.md.j2`. `write_cards` puts it, and croissant.json, beside the shards.
Neither is part of the version: a change of their words renames nothing.
"""

import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined

from pipelines.card.croissant import croissant
from pipelines.card.show import copy_lines, failures_by_host, most_frequent, split_lines, stage_lines
from schemas.documents import Split, image_schema
from schemas.lake import Folder
from schemas.manifest import CARDS, Manifest, table_parts
from schemas.overrides import flatten
from schemas.versions import canonical_json, code_version

README, _ = CARDS
TABLES = {"documents": "sentence", "images": "image"}  # and what one of their feature values is of
# Hugging Face's size categories: documents below the bound, its name.
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
_HUGGING_FACE = {"halffloat": "float16", "float": "float32", "binary": "image"}  # names of types
_ABOUT = {
    "cite": "image and text pairs of recipes with relations (Alikhani 2022)",
    "clue": "image and caption pairs with coherence relations (Alikhani 2022)",
    "dii-stress": "stories of VIST with distractor captions (Hessel 2019)",
    "diy": "Reddit DIY posts with their imgur albums, captions being the sentences (Hessel 2019)",
    "documents": "a user's own documents",
    "hf": "a data set of Hugging Face's",
    "interleaved": "interleaved documents of NeMo Curator or MINT-1T (Awadalla 2024)",
    "mmc4": "documents of Multimodal C4, with CLIP's assignment as a baseline (Zhu 2023)",
    "mscoco": "groups of COCO images with captions of true and of distracting images (Hessel 2019)",
    "multi-retrieval": "documents and image features as Hessel 2019 released them, without pixels",
    "news": "news articles with one image and texts of four roles (Liu 2020)",
    "obelics": "web pages of OBELICS or MINT-1T, pictures in their places (Laurencon 2023)",
    "rqa": "recipes of RecipeQA, steps being the sentences (Hessel 2019)",
    "story-dii": "VIST stories, descriptions of images in isolation (Hessel 2019)",
    "story-sis": "VIST stories, one sentence an image in sequence (Hessel 2019)",
    "web": "main text and pictures of crawled pages",
    "webdataset": "pictures with their captions",
    "wiki": "Wikipedia articles with their images, links unknown (Hessel 2019)",
}


def write_cards(folder: Folder, manifest: Manifest) -> None:
    """Write README.md and croissant.json into a version's folder: a view of it, which its manifest does not list."""
    card = dataset_card(manifest, failures_by_host(table_parts(manifest, folder, "failures")))
    for name, text in zip(CARDS, (card, croissant(manifest)), strict=True):
        folder.write(name, text.encode())


def dataset_card(manifest: Manifest, hosts: Mapping[tuple[str, str], int] = MappingProxyType({})) -> str:
    """Return the text of a version's README.md.

    Args:
        manifest: of the version.
        hosts: its failures by host and reason; what failed for the moment is no part of a version.
    """
    documents = sum(row.documents for row in manifest.splits.values())
    # An empty split has no file, and no glob may name it.
    splits = {table: [split for split in Split if manifest.parts(table, split)] for table in TABLES}
    return render(
        "README.md.j2",
        manifest=manifest,
        code_version=code_version(),
        about=_ABOUT.get(manifest.dataset, "documents of sentences and images"),
        size=next((name for bound, name in _SIZES if documents < bound), "n>10M"),
        splits={table: found for table, found in splits.items() if found},
        tables=TABLES,
        image_features=[_hugging_face(field) for field in image_schema(manifest.columns("images"))],
        placed=sum(row.placed_images for row in manifest.splits.values()),
        shown=sum(row.images for row in manifest.splits.values()),
        statistics=split_lines(manifest),
        stages=stage_lines(manifest),
        copies=copy_lines(manifest),
        settings=[f"{key} = {canonical_json(value)}" for key, value in sorted(flatten(manifest.config).items())],
        hosts=most_frequent(hosts),
    )


def render(template: str, **content: Any) -> str:
    """Return a template of this folder filled in; in HTML everything is escaped."""
    environment = Environment(
        loader=PackageLoader("pipelines.card", "."),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["json"] = partial(json.dumps, ensure_ascii=False)  # a JSON value is a YAML one
    return environment.get_template(template).render(content)


def _hugging_face(field: pa.Field) -> dict[str, Any]:
    """Return a column as Hugging Face's `dataset_info` names it: the stored pictures are of its type `image`.

    Its reader takes the first key after the name for the kind of type: `length` must follow `sequence`.
    """
    return {"name": field.name, **_hugging_face_type(field.type)}


def _hugging_face_type(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"struct": [_hugging_face(field) for field in kind]}
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _hugging_face_type(kind.value_type)
        length = {"length": kind.list_size} if pa.types.is_fixed_size_list(kind) else {}
        return {"list": inner["struct"]} if "struct" in inner else {"sequence": inner.get("dtype", inner), **length}
    return {"dtype": _HUGGING_FACE.get(str(kind), str(kind))}
