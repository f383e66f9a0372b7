"""The contract of extractors: the weight files they read, the values they give, and how these are kept.

Of a picture: a vector, regions or classes; of a document: a vector of each sentence. `Rejected` stands for one bad
picture among good ones.

    <lake>/features/<extractor>/<fingerprint>/<pack>.parquet    key, value, rejected

The key is the content hash of an image, or the digest of a document's texts. A value is kept as it was computed:
vectors in float32, so that another storage computes nothing again; regions and classes as shards hold them; of a
document, a list of vectors. Where an extractor rejects a picture, the value is null and `rejected` says why. What
float16 cannot hold is rejected in every storage.

A weight file that a user names is `NAME=URI[#sha256=HEX]`; a URI is a path, `file://`, `http(s)://`, or one of an
object store. Only what configuration names is ever fetched, only when an extractor first needs it, and only from an
address whose SHA-256 is stated. What a host has goes through the client of every source. It is kept in a cache outside
the lake. A file is hashed whenever it is opened, wherever it is.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from filelock import FileLock

from pipelines.packs import PackFolder, PackRef
from pipelines.settings import FeaturesConfig, HttpConfig
from pipelines.web.client import process_client
from pipelines.web.downloads import capture_file
from pipelines.web.requests import FetchFailed
from schemas.configs import require
from schemas.errors import BuildError, ConfigError, IntegrityError, NotFoundError
from schemas.features import FeatureColumn, FeatureKind, Storage, storable, vectors_to_column
from schemas.lake import Folder, Lake, folder_of
from schemas.tables import column as table_column
from schemas.tables import table_schema
from schemas.versions import digest_stream, digest_within, fingerprint

IMAGES, DOCUMENTS = "images", "documents"  # the tables that have feature columns
PACK_VERSION = 1
GROUP_BYTES = 1 << 16  # of rows that are read together, about
FINGERPRINT_DIGITS = 16
F = TypeVar("F", bound=np.floating[Any])
Float32 = npt.NDArray[np.float32]
Vector = Float32  # d
Matrix = Float32  # N x d


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Regions of one picture, surest first.

    Attributes:
        boxes: R x 4 float32 (left, top, right, bottom), as shares 0..1 of the stored picture's width and height.
        labels: R class names ("concepts").
        scores: R float32 in 0..1, falling.
        vectors: R x d float32.
    """

    boxes: Float32
    labels: tuple[str, ...]
    scores: Float32
    vectors: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The likeliest classes of one picture, and their probabilities (float32, falling)."""

    labels: tuple[str, ...]
    probabilities: Float32


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why there is no value of one item; the others of its batch have theirs."""

    message: str


class Passing(Rejected):
    """Why there is no value of an item now; it is not kept for later builds.

    An error that no extractor foresees, or a name that nothing was given for: the picture may come under another one.
    """


Value = Vector | Matrix | Regions | Classes
Row = tuple[Value | Rejected, ...]  # of one item, a value of each column


def feature_column(
    name: str,
    config: FeaturesConfig,
    dimensions: int,
    depends_on: dict[str, Any],
    kind: FeatureKind = FeatureKind.VECTOR,
) -> FeatureColumn:
    """Return an extractor's column.

    Args:
        name: of the column.
        config: says how it is stored.
        dimensions: of a vector, or of a region's vector; 0 for classes.
        depends_on: everything that values follow from beside the item and, for regions, the limits of the settings.
        kind: of its values.
    """
    if kind is FeatureKind.REGIONS:
        limits = {"least": config.min_regions, "most": config.max_regions, "score": config.min_score}
        depends_on = {**depends_on, "limits": limits}
    return FeatureColumn(
        name=name, kind=kind, dimensions=dimensions, storage=config.storage, fingerprint=fingerprint(depends_on)
    )


def kept_regions(scores: Float32, config: FeaturesConfig) -> npt.NDArray[np.intp]:
    """Return the rows of the regions that are kept, by falling score, equal ones in their order.

    Those of at least `min_score`; but no fewer than `min_regions` of what there is, and no more than `max_regions`
    (Anderson et al. 2018: 10 to 100 with a confidence of at least 0.2).
    """
    order = np.argsort(-scores, kind="stable")
    sure = int((scores >= config.min_score).sum())
    return order[: min(max(sure, config.min_regions), config.max_regions)]


def unit_length(vectors: npt.NDArray[F]) -> npt.NDArray[F]:
    """Return vectors of length 1 along the last axis; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(vectors.dtype, copy=False)


def feature_folder(lake: Lake, column: FeatureColumn) -> Folder:
    """Return the folder of a column's values: its name follows from all they depend on beside the key."""
    return lake.features.child(column.name, column.fingerprint[:FINGERPRINT_DIGITS])


def feature_packs(lake: Lake, column: FeatureColumn, table: str) -> PackFolder:
    """Return the packs of a column of images, or of documents' sentences."""
    width = {FeatureKind.VECTOR: 4, FeatureKind.REGIONS: 64, FeatureKind.CLASSES: 1}[column.kind]
    row_bytes = width * max(column.dimensions, 1) * (1 if table == IMAGES else 12)  # sentences, usually
    fields = [
        table_column("key", pa.string(), "SHA-256 (hex) of the image, or of the document's texts"),
        table_column("value", _kept_type(column, table), f"what {column.name} gives, in full", nullable=True),
        table_column("rejected", pa.string(), "why there is no value", nullable=True),
    ]
    rows_per_group = min(64, max(1, GROUP_BYTES // row_bytes))
    schema = table_schema("features", PACK_VERSION, fields)
    return PackFolder(feature_folder(lake, column), schema, "key", rows_per_group)


def checked(value: Value | Rejected, column: FeatureColumn) -> Value | Rejected:
    """Return a value that can be stored in its column, or why it cannot.

    Raises:
        IntegrityError: it is something else than the column says.
    """
    kind, size = FeatureKind.VECTOR, column.dimensions
    if isinstance(value, Rejected):
        return value
    if isinstance(value, Regions):
        kind, parts = FeatureKind.REGIONS, [value.vectors, value.boxes, value.scores[:, None]]
    elif isinstance(value, Classes):
        kind, parts = FeatureKind.CLASSES, [value.probabilities[:, None]]
    else:
        parts = [np.atleast_2d(value)]
    if kind is not column.kind or (size and parts[0].shape[1] != size):
        raise IntegrityError(f"extractor {column.name}: expected {column.describe()}, found {kind} of another shape")
    is_sound = all(storable(part, Storage.FLOAT16).all() for part in parts)
    return value if is_sound else Rejected("a value is not finite, or beyond float16's 65504")


def value_rows(values: Iterable[Value | Rejected]) -> list[Any]:
    """Return values as a pack's rows; null where there is none."""
    return [None if isinstance(value, Rejected) else _row(value) for value in values]


def value_array(values: Iterable[Value | Rejected], column: FeatureColumn, table: str) -> pa.Array:
    """Return values as a column of a shard's table; none of them is rejected."""
    return _stored(pa.array(value_rows(values), _kept_type(column, table)), column)


def feature_array(lake: Lake, column: FeatureColumn, table: str, refs: Sequence[PackRef]) -> pa.Array:
    """Return the values at some references, in order, as a column of a shard.

    Raises:
        BuildError: a pack is gone.
    """
    packs = feature_packs(lake, column, table)
    return _stored(packs.read(refs, ["value"])["value"].combine_chunks(), column)


def _kept_type(column: FeatureColumn, table: str) -> pa.DataType:
    """Return the type of a value in a pack: a vector is a list there, since Parquet knows no null of a fixed size."""
    kind = pa.list_(pa.float32()) if column.kind is FeatureKind.VECTOR else column.type
    return kind if table == IMAGES else pa.list_(kind)


def _stored(array: pa.Array, column: FeatureColumn) -> pa.Array:
    """Return values as packs keep them in the storage of their column."""
    if column.kind is not FeatureKind.VECTOR:
        return array
    is_nested = pa.types.is_list(array.type.value_type)
    floats = array.flatten(recursive=True).to_numpy()
    vectors = vectors_to_column(floats.reshape(-1, column.dimensions), column.storage)
    offsets = np.cumsum([0, *array.value_lengths().to_numpy()], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), vectors) if is_nested else vectors


def _row(value: Value) -> Any:
    if isinstance(value, Regions):
        regions = zip(value.boxes, value.labels, value.scores, value.vectors.astype(np.float16), strict=True)
        return [dict(zip(("box", "label", "score", "vector"), region, strict=True)) for region in regions]
    if isinstance(value, Classes):
        classes = zip(value.labels, value.probabilities, strict=True)
        return [{"label": label, "probability": probability} for label, probability in classes]
    return value if value.ndim == 1 else list(value)


_FIELD = "features.weights"
_HTTP = ("http://", "https://")
_CONVERT = "pipelines.features.convert."
_DIGITS = 16
_SHA256 = re.compile(r"[0-9a-f]{64}")


class LocalFile(NamedTuple):
    """A file on this machine, and its SHA-256 (hex)."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file of weights: its name in the configuration, its address, its SHA-256 (hex) or "", and how it is fetched."""

    name: str
    uri: str
    sha256: str = ""
    http: HttpConfig = field(default_factory=HttpConfig)

    def __str__(self) -> str:
        return f"{self.name}={self.uri}" + f"#sha256={self.sha256}" * bool(self.sha256)

    @property
    def is_graph(self) -> bool:
        """Return whether it is a network in ONNX, by its name."""
        return self.uri.partition("?")[0].endswith(".onnx")

    @property
    def digest(self) -> str:
        """Return the stated SHA-256 (hex), else the file's."""
        return self.sha256 or self.local().sha256

    def local(self) -> LocalFile:
        """Return the local file, fetched into the cache (see `machine_cache`) where its address is remote.

        Raises:
            NotFoundError: there is no such file.
            BuildError: the address does not answer with the file.
            IntegrityError: the file's SHA-256 is not the stated one; a fetched file is deleted then.
        """
        is_uri, is_remote = self.uri.startswith("file:"), _is_remote(self.uri)
        named = Path(unquote(urlsplit(self.uri).path)) if is_uri else Path(self.uri).expanduser()
        path = self._fetched() if is_remote else named
        if not path.is_file():
            raise NotFoundError(f"{_FIELD}: {self.name}: there is no file {path}")
        found = digest_of(path)
        if self.sha256 in ("", found):
            return LocalFile(path, found)
        if is_remote:
            path.unlink()
        raise IntegrityError(f"{_FIELD}: {self.name}: expected SHA-256 {self.sha256}, {path} of {self.uri} has {found}")

    def _fetched(self) -> Path:
        cache, name = machine_cache("weights"), PurePosixPath(urlsplit(self.uri).path).name or "weights"
        path = Path(cache.uri, self.sha256, name)
        if not path.is_file():
            try:
                self._fetch(cache, path)
            except (FetchFailed, OSError) as error:
                raise BuildError(f"{_FIELD}: {self.name}: {self.uri} could not be fetched: {error}") from error
        return path

    def _fetch(self, cache: Folder, path: Path) -> None:
        if not self.uri.startswith(_HTTP):
            folder, name = folder_of(self.uri)
            return Folder(str(path.parent)).write(path.name, folder.read(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        capture_file(process_client(self.http, cache), self.uri).path.replace(path)


def parse_weights(assignments: Iterable[str], http: HttpConfig | None = None) -> dict[str, WeightFile]:
    """Return the weight files of `NAME=URI[#sha256=HEX]` by name.

    Raises:
        ConfigError: an entry of another form, or a name given twice.
    """
    weights: dict[str, WeightFile] = {}
    for assignment in assignments:
        name, separator, address = assignment.partition("=")
        uri, _, digest = address.partition("#sha256=")
        name, uri, digest = name.strip(), uri.strip(), digest.strip()
        for holds, rule in (
            (separator, "expected NAME=URI[#sha256=HEX]"),
            (name, "NAME=URI needs a name"),
            (uri, "NAME=URI needs an address"),
            (name not in weights, "a name may be given once"),
            (digest == "" or _SHA256.fullmatch(digest), "sha256 must be 64 lower-case hex digits"),
            (digest or not _is_remote(uri), f"{uri.partition('://')[0]} needs #sha256=HEX"),
        ):
            require(bool(holds), field=_FIELD, value=assignment, rule=rule)
        weights[name] = WeightFile(name, uri, digest, http or HttpConfig())
    return weights


def weight_of(name: str, weights: Mapping[str, WeightFile], *, what: str) -> WeightFile:
    """Return the weight file of this name.

    Raises:
        ConfigError: it is not given; the message says which setting to give.
    """
    if name not in weights:
        raise ConfigError(f"{_FIELD} has no {name!r}: give --set {_FIELD}={name}=FILE, {what}")
    return weights[name]


def machine_cache(kind: str) -> Folder:
    """Return a folder of this machine, below `$MULTILINK_CACHE`, else ~/.cache/multilink.

    Args:
        kind: `weights`, which were fetched, or `networks`, the graphs that were made of checkpoints.
    """
    root = os.environ.get("MULTILINK_CACHE")
    return Folder(str((Path(root) if root else Path.home() / ".cache" / "multilink") / kind))


def graph_stem(name: str, module: str, checkpoint: str) -> str:
    """Return the name of the graph that is made of a checkpoint: one by one checkpoint and one code.

    Args:
        module: builds the network. What it uses of `networks`, and what converts, is the code.
        checkpoint: SHA-256 (hex) of its file.
    """
    code = digest_within(module, f"{module}.", "networks.", _CONVERT)
    return f"{name}-{fingerprint({'checkpoint': checkpoint, 'code': code})[:_DIGITS]}"


def make_once(name: str, make: Callable[[], bytes]) -> Folder:
    """Return the folder of networks of this machine once it has a file; of processes that want it, one makes it."""
    cache = machine_cache("networks")
    if not cache.exists(name):
        Path(cache.uri).mkdir(parents=True, exist_ok=True)
        with FileLock(Path(cache.uri, f".{name}.lock")):
            if not cache.exists(name):
                cache.write(name, make())
    return cache


def kept_in(folder: Folder, name: str, file: str, read: Callable[[], bytes]) -> WeightFile:
    """Return a file of weights of some name, kept in a folder; what the folder has is not read again."""
    if not folder.exists(file):
        folder.settle(file, read())
    return WeightFile(name, folder.child(file).uri, hashlib.sha256(folder.read(file)).hexdigest())


def _is_remote(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file:")


def digest_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return digest_stream(stream)
