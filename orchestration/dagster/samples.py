"""What a version holds and how it was linked, as Markdown that Dagster's page shows: texts, and small pictures in it.

Pictures are data URIs, so that the page loads nothing else. Texts of others are code of Markdown: they stay as they
are, and nothing in them is followed.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from pipelines.card.changes import as_code
from schemas.documents import IMAGE_NUMBERS, SENTENCE_NUMBERS, Split
from schemas.lake import MANIFEST, Folder, Lake
from schemas.links import LINK_SCHEMA, read_links
from schemas.manifest import FileEntry, read_manifest
from schemas.parts import read_part, rows_where, split_parts
from training.linking.shards import LINKS
from training.report.examples import clip, thumbnail_uri

DOCUMENTS, SENTENCES, PICTURES = 5, 4, 3  # of a version; of each document
LINKED = 8  # links, each of another document
_DOCUMENT = ("id", "sentences", "images")
_NUMBERED = (*_DOCUMENT, SENTENCE_NUMBERS, IMAGE_NUMBERS)


def sample_of(lake: Lake, reference: str) -> str:
    """Return the first documents of a version: their first sentences and pictures; "" where it has none."""
    manifest, folder = read_manifest(lake, reference)
    split = next((each for each in Split if any(part.rows for part in manifest.parts("documents", each))), None)
    if split is None:
        return ""
    documents, images = next(parts for parts in split_parts(manifest, split) if parts[0].rows)
    rows = read_part(folder, documents, _DOCUMENT).slice(0, DOCUMENTS).to_pylist()
    chosen = [[image["hash"] for image in row["images"][:PICTURES]] for row in rows]
    pictures = _pictures(folder, images, [key for keys in chosen for key in keys])
    return "\n\n".join(_document(row, keys, pictures) for row, keys in zip(rows, chosen, strict=True))


def links_of(lake: Lake, reference: str, output: str) -> str:
    """Return the surest link of some documents as a table; "" where nothing was linked.

    Args:
        lake: with the version.
        reference: NAME@VERSION.
        output: folder of the links.
    """
    home = Folder(output)
    if not home.exists(MANIFEST):
        return ""
    made = read_links(home)
    entry = next((each for each in made.files if each.path.startswith(f"{LINKS}/") and each.rows), None)
    if entry is None:
        return ""
    rows = read_part(home, entry, ("document", "sentence", "image", "similarity", "probability", "word"), LINK_SCHEMA)
    surest: dict[str, dict[str, Any]] = {}
    for link in rows.sort_by([("similarity", "descending"), ("document", "ascending")]).to_pylist():
        surest.setdefault(link["document"], link)
    links = list(islice(surest.values(), LINKED))
    manifest, folder = read_manifest(lake, reference)
    split, name = entry.path.split("/")[1:]
    documents, images = (
        next(each for each in manifest.parts(table, split) if each.path.endswith(f"/{name}"))
        for table in ("documents", "images")
    )
    found = {row["id"]: row for row in rows_where(folder, documents, _NUMBERED, list(surest)[:LINKED])}
    keys = [_part(found[link["document"]], "images", IMAGE_NUMBERS, link["image"])["hash"] for link in links]
    pictures = _pictures(folder, images, keys)
    lines = ["| similarity | probability | sentence | picture | document |", "|---|---|---|---|---|"]
    for link, key in zip(links, keys, strict=True):
        sentence = _part(found[link["document"]], "sentences", SENTENCE_NUMBERS, link["sentence"])["text"]
        sure = link["word"] or "" if link["probability"] is None else f"{link['probability']:.0%}"
        cells = (
            f"{link['similarity']:.2f}",
            sure,
            _cell(clip(sentence)),
            pictures.get(key, ""),
            _cell(link["document"]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _document(row: Mapping[str, Any], images: Iterable[str], pictures: Mapping[str, str]) -> str:
    texts = " / ".join(as_code(clip(each["text"])) for each in row["sentences"][:SENTENCES])
    text = f"{as_code(row['id'])}, {len(row['images'])} pictures: {texts}"
    return "\n\n".join(filter(None, (text, " ".join(filter(None, map(pictures.get, images))))))


def _part(row: Mapping[str, Any], parts: str, numbers: str, number: int) -> Mapping[str, Any]:
    """Return a sentence or an image of a row by its number (`schemas.documents`)."""
    found: Mapping[str, Any] = row[parts][row[numbers].index(number) if row.get(numbers) else number]
    return found


def _cell(text: str) -> str:
    return as_code(text).replace("|", "\\|")


def _pictures(folder: Folder, part: FileEntry, wanted: list[str]) -> dict[str, str]:
    """Return pictures as Markdown by their content hash; those that the version has a copy of."""
    copies = ((row["hash"], thumbnail_uri(row["jpeg"])) for row in rows_where(folder, part, ("hash", "jpeg"), wanted))
    return {key: f"![{key[:8]}]({uri})" for key, uri in copies if uri is not None}
