"""The pictures of a data set version as columns: each different one once, with all that an index says of it.

Pictures are known by the first 64 bits of their content hash. Arrays of these are held for a whole version; what is
said of pictures is read shard by shard. Two pictures with one key are taken for one: among 100 million, any two have
one with a probability of 3 in 10,000.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import Role, document_schema, image_schema
from schemas.duplicates import DUPLICATE_SCHEMA
from schemas.indexes import FIELDS_SCHEMA
from schemas.lake import Folder
from schemas.manifest import Manifest, table_parts
from schemas.metadata import METADATA_TYPE
from schemas.parts import Shard, read_part
from schemas.tables import check_schema
from training.data.lake import HASHES, ROLES
from training.data.ragged import Int32, Int64, UInt64, hash_keys

MAX_SHOWN_WITH = 4_000  # characters of the captions of all articles that showed a picture
_COPIED = ("source", "format", "width", "height", "licence")
_DAY = r"^\d{4}(-\d{2}){0,2}$"
_TEXTS = "sentences.list.element.text"


@dataclass(frozen=True, slots=True)
class Pictures:
    """All different pictures of a version, in order of their keys, and where each is first.

    Attributes:
        manifest: of the version.
        source: its folder.
        shards: S of them.
        keys: N.
        shard: N numbers of shards.
        row: N, in the images part of that shard.
        clusters: of near-duplicates, of those that are in one: `key` and `text`, by key.
        captions: of the articles that showed a picture and no other, likewise.
    """

    manifest: Manifest
    source: Folder
    shards: Sequence[Shard]
    keys: UInt64
    shard: Int32
    row: Int32
    clusters: pa.Table
    captions: pa.Table

    @classmethod
    def of(cls, manifest: Manifest, source: Folder, shards: Sequence[Shard]) -> Self:
        """Return the pictures of some shards of a version."""
        parts = [hash_keys(read_part(source, shard.images, ("hash",)).column(0)) for shard in shards]
        keys, first = np.unique(np.concatenate([np.zeros(0, np.uint64), *parts]), return_index=True)
        counts = list(map(len, parts))
        shard = np.repeat(np.arange(len(parts), dtype=np.int32), counts)[first]
        row = (first - np.cumsum([0, *counts])[shard]).astype(np.int32)
        known = _clusters(manifest, source), _captions(manifest, source, shards)
        return cls(manifest, source, shards, keys, shard, row, *known)

    def of_shard(self, number: int) -> Int64:
        """Return which pictures are first in a shard, in order of its rows."""
        own = np.flatnonzero(self.shard == number)
        return own[np.argsort(self.row[own])]

    def fields(self, number: int) -> pa.Table:
        """Return what is known of the pictures that are first in a shard, in order of its rows."""
        own = self.of_shard(number)
        schema = image_schema(self.manifest.columns("images"))
        part = read_part(self.source, self.shards[number].images, ("hash", *_COPIED, "metadata"), schema)
        return _fields(part.take(self.row[own]), self.keys[own], clusters=self.clusters, captions=self.captions)


def _fields(part: pa.Table, keys: UInt64, *, clusters: pa.Table, captions: pa.Table) -> pa.Table:
    """Return rows of `FIELDS_SCHEMA` of rows of an images part."""
    nothing = pa.nulls(part.num_rows, METADATA_TYPE)
    said = part.column("metadata").combine_chunks() if "metadata" in part.column_names else nothing
    values = {name: pc.struct_field(said, name) for name in METADATA_TYPE.names}
    values |= {name: part.column(name).combine_chunks() for name in _COPIED}
    values["licence"] = pc.coalesce(values["licence"], values["rights"])
    values["day"] = _days(values["date"])
    values["orientation"] = _orientations(values["width"], values["height"])
    values["keywords"] = pc.coalesce(values["keywords"], pa.scalar([], pa.list_(pa.string())))
    values |= {"key": pa.array(keys), "image": part.column("hash").combine_chunks()}
    values |= {"cluster": _texts(clusters, keys), "shown_with": _texts(captions, keys)}
    columns = [pc.cast(values[field.name], _plain(field.type)) for field in FIELDS_SCHEMA]
    return pa.table(columns, pa.schema([field.with_type(_plain(field.type)) for field in FIELDS_SCHEMA]))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column before its values are numbered, which is done for a whole part of an index."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _days(dates: pa.Array) -> pa.Array:
    """Return dates as YYYYMMDD, zeros for what they do not tell."""
    digits = pc.utf8_rpad(pc.replace_substring(dates, "-", ""), 8, "0")
    return pc.if_else(pc.match_substring_regex(dates, _DAY), digits, pa.scalar(None, pa.string())).cast(pa.int32())


def _orientations(width: pa.Array, height: pa.Array) -> pa.Array:
    is_known = pc.and_(pc.greater(width, 0), pc.greater(height, 0))
    kinds = pa.array(["portrait", "square", "landscape"])
    return kinds.take(pc.if_else(is_known, pc.add(pc.sign(pc.subtract(width, height)), 1), None))


def _texts(known: pa.Table, keys: UInt64) -> pa.Array:
    """Return the texts of each key as one, null where there is none."""
    own = known.column("key").to_numpy()
    first, last = np.searchsorted(own, keys), np.searchsorted(own, keys, side="right")
    ends = np.cumsum(last - first)
    rows = np.repeat(last - ends, last - first) + np.arange(ends[-1] if len(ends) else 0)
    texts = known.column("text").take(rows).combine_chunks().cast(pa.string())
    joined = pc.binary_join(pa.ListArray.from_arrays(np.append(0, ends).astype(np.int32), texts), " ")
    return pc.if_else(pa.array(first < last), pc.utf8_slice_codeunits(joined, 0, MAX_SHOWN_WITH), None)


def _by_key(hashes: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.Table:
    """Return the different texts of content hashes, in order of their keys and of the alphabet."""
    table = pa.table({"key": hash_keys(hashes), "text": texts.cast(pa.large_string())})
    different = table.group_by(["key", "text"], use_threads=False).aggregate([])
    return different.sort_by([("key", "ascending"), ("text", "ascending")]).combine_chunks()


def _clusters(manifest: Manifest, source: Folder) -> pa.Table:
    """Return the cluster of near-duplicates of each picture that is in one."""
    found = [DUPLICATE_SCHEMA.empty_table()]
    for part in table_parts(manifest, source, "duplicates"):
        check_schema(part.schema, DUPLICATE_SCHEMA, where=source.uri)
        found.append(part)
    table = pa.concat_tables([part.select(("image", "cluster")) for part in found])
    return _by_key(table.column("image"), table.column("cluster"))


def _captions(manifest: Manifest, source: Folder, shards: Sequence[Shard]) -> pa.Table:
    """Return the captions that articles have for each picture that they show alone."""
    schema = document_schema(manifest.columns("documents"))
    found = [pa.table({"hash": pa.array([], pa.string()), "text": pa.array([], pa.string())})]
    for shard in shards:
        roles = read_part(source, shard.documents, (ROLES,), schema)
        if Role.CAPTION in pc.unique(_items(roles, "sentences", "role")).to_pylist():
            found.append(_captions_of(read_part(source, shard.documents, (_TEXTS, ROLES, HASHES), schema)))
    table = pa.concat_tables(found)
    return _by_key(table.column("hash"), table.column("text"))


def _captions_of(documents: pa.Table) -> pa.Table:
    """Return the content hash of the only picture of each document that has one and a caption, and the caption."""
    table = documents.filter(pc.equal(pc.list_value_length(documents.column("images")), 1)).combine_chunks()
    is_caption = pc.equal(_items(table, "sentences", "role"), str(Role.CAPTION))
    owners = pc.list_parent_indices(table.column("sentences")).filter(is_caption)
    texts = pa.table({"owner": owners, "text": _items(table, "sentences", "text").filter(is_caption)})
    joined = texts.group_by("owner", use_threads=False).aggregate([("text", "list")])
    hashes = _items(table, "images", "hash").take(joined.column("owner"))
    return pa.table({"hash": hashes, "text": pc.binary_join(joined.column("text_list"), " ")})


def _items(table: pa.Table, column: str, name: str) -> pa.ChunkedArray:
    return pc.struct_field(pc.list_flatten(table.column(column)), name)
