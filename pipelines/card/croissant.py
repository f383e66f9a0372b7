"""croissant.json: a version described for machines, as MLCommons Croissant 1.0 (JSON-LD).

Every part file is a FileObject with its SHA-256; the parts of a table are a FileSet, whose columns are the fields of a
RecordSet. Fields come from the same schemas the parts were written with, so that the two cannot disagree.

Specification: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.0.html
"""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from schemas.documents import document_schema, image_schema
from schemas.manifest import FileEntry, Manifest
from schemas.tables import MEANING

PARQUET = "application/x-parquet"
CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
LICENCE = "Texts and images belong to those who made them; rows carry source and licence where known."
Node = dict[str, Any]
_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_binary, "sc:ImageObject"),
    (pa.types.is_boolean, "sc:Boolean"),
    (pa.types.is_integer, "sc:Integer"),
    (pa.types.is_floating, "sc:Float"),
)

# The context that the specification gives (appendix 1).
CONTEXT: Node = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def croissant(manifest: Manifest) -> str:
    """Return the text of a version's croissant.json."""
    tables = {
        "documents": document_schema(manifest.columns("documents")),
        "images": image_schema(manifest.columns("images")),
    }
    present = {
        table: parts
        for table in tables
        if (parts := [entry for entry in manifest.files if entry.path.startswith(f"{table}/")])
    }
    description = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": manifest.dataset,
        "description": "Documents of ordered sentences and images, with the links between them where they are known.",
        "version": f"1.0.0+{manifest.version}",
        "license": LICENCE,
        "isLiveDataset": False,
        "distribution": [
            *(_file_object(entry) for parts in present.values() for entry in sorted(parts)),
            *(_file_set(table) for table in present),
        ],
        "recordSet": [_record_set(table, tables[table]) for table in present],
    }
    return json.dumps(description, indent=1, ensure_ascii=False) + "\n"


def _file_object(entry: FileEntry) -> Node:
    return {
        "@type": "cr:FileObject",
        "@id": entry.path,
        "name": entry.path,
        "contentUrl": entry.path,
        "contentSize": f"{entry.bytes} B",
        "encodingFormat": PARQUET,
        "sha256": entry.sha256,
    }


def _file_set(table: str) -> Node:
    return {
        "@type": "cr:FileSet",
        "@id": f"{table}-parts",
        "name": f"{table}-parts",
        "description": f"The parts of {table}: {table}/<split>/part-<index>-of-<count>.parquet",
        "encodingFormat": PARQUET,
        "includes": f"{table}/*/*.parquet",
    }


def _record_set(table: str, schema: pa.Schema) -> Node:
    fields = [_field(f"{table}/{field.name}", field, _source(table, {"column": field.name})) for field in schema]
    if "split" not in schema.names:
        fields.append(_split_of_path(table))
    node: Node = {"@type": "cr:RecordSet", "@id": table, "name": table}
    if "id" in schema.names:  # an image is once in each part that needs it: its hash is no key of the whole
        node["key"] = {"@id": f"{table}/id"}
    return node | {"field": fields}


def _field(path: str, field: pa.Field, source: Node) -> Node:
    """Return the field of a column; the fields of a struct, or of a list of structs, become its subfields.

    A list inside a list of structs has no place in Croissant 1.0: `relations` of a link, and the box and vector of a
    region, are left out.
    """
    node: Node = {"@type": "cr:Field", "@id": path, "name": path, "description": field.metadata[MEANING].decode()}
    is_repeated, kind = _is_list(field.type), field.type
    if is_repeated:
        node["repeated"], kind = True, kind.value_type
    if not pa.types.is_struct(kind):
        return node | {"dataType": _data_type(field), "source": source}
    node["subField"] = [
        _field(f"{path}/{child.name}", child, source | {"transform": {"jsonPath": child.name}})
        for child in kind
        if not (is_repeated and _is_list(child.type))
    ]
    return node


def _split_of_path(table: str) -> Node:
    """Return the field that takes the split from a part's path."""
    source = _source(table, {"fileProperty": "fullpath"}) | {"transform": {"regex": f"{table}/([^/]+)/.+"}}
    return {
        "@type": "cr:Field",
        "@id": f"{table}/split",
        "name": f"{table}/split",
        "description": "train, val or test",
        "dataType": ["sc:Text", "cr:Split"],
        "source": source,
    }


def _source(table: str, extract: Node) -> Node:
    return {"fileSet": {"@id": f"{table}-parts"}, "extract": extract}


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind))


def _data_type(field: pa.Field) -> str | list[str]:
    """Return the type of a column's values, of the innermost ones of a list."""
    kind = field.type
    while _is_list(kind):
        kind = kind.value_type
    if field.name == "split":
        return ["sc:Text", "cr:Split"]
    return next((name for fits, name in _TYPES if fits(kind)), "sc:Text")
