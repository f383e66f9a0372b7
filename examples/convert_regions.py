"""Published regions, such as bottom-up-attention's of Visual Genome, become a table that a build reads.

python examples/convert_regions.py trainval_36.tsv regions.parquet
multilink build ... --set features.images=anderson --set features.weights=anderson=regions.parquet

FILE.tsv       image_id, image_w, image_h, num_boxes, boxes, features (bottom-up-attention); with classes (LXMERT):
               img_id, img_h, img_w, objects_id, objects_conf, attrs_id, attrs_conf, num_boxes, boxes, features;
               arrays are base64 of float32, ids of int64
FILE.npz       x (regions x d, or its transpose), bbox, image_w, image_h, and objects_id, objects_conf, attrs_id and
               attrs_conf where they are arrays of their own (a pickled `info` is not read)
FILE.hdf5      image_features and spatial_features, N x 36 x d or, with pos_boxes, regions x d; beside it
               FILE_imgid2idx.pkl or .json (image id -> row). It needs h5py: pip install h5py
FOLDER         of several .npz or .tsv files
"""

import argparse
import base64
import io
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ATTRIBUTE_FROM = 0.1  # confidence from which an attribute is named, as in Anderson et al.'s demonstration
ROWS_AT_ONCE = 1024
PLAIN = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
CLASSED = (
    "image_id", "image_h", "image_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf", "num_boxes", "boxes",
    "features",
)  # fmt: skip
OF_CLASSES = CLASSED[3:7]
SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("box", pa.list_(pa.float32()), nullable=False),
        pa.field("vector", pa.list_(pa.float32()), nullable=False),
        pa.field("label", pa.string()),
        pa.field("score", pa.float32()),
    ]
)


class Picture(NamedTuple):
    """The regions of a picture: boxes are R x 4 shares of its width and height, vectors R x d."""

    name: str
    boxes: Any
    vectors: Any
    extra: Mapping[str, Any]


def read_tsv(path: Path) -> Iterator[Picture]:
    """Yield the pictures of a file of lines."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            values = line.rstrip(b"\r\n").split(b"\t")
            if len(values) not in (len(PLAIN), len(CLASSED)):
                raise SystemExit(f"{path}, line {number}: expected 6 or 10 columns, found {len(values)}")
            cells = dict(zip(PLAIN if len(values) == len(PLAIN) else CLASSED, values, strict=True))
            kinds = {"objects_id": np.int64, "attrs_id": np.int64}
            arrays: dict[str, Any] = {
                name: np.frombuffer(base64.b64decode(cell), kinds.get(name, np.float32)).reshape(
                    int(cells["num_boxes"]), -1
                )
                for name, cell in cells.items()
                if name not in PLAIN[:4]
            }
            size = float(cells["image_w"]), float(cells["image_h"])
            extra = {name: arrays[name].ravel() for name in OF_CLASSES if name in arrays}
            yield Picture(cells["image_id"].decode(), arrays["boxes"] / (*size, *size), arrays["features"], extra)


def read_npz(path: Path) -> Iterator[Picture]:
    """Yield the picture of an archive."""
    with np.load(path, allow_pickle=False) as file:
        boxes, vectors = file["bbox"], file["x"]
        size = float(file["image_w"]), float(file["image_h"])
        extra = {name: file[name].ravel() for name in OF_CLASSES if name in file.files}
    yield Picture(path.stem, boxes / (*size, *size), vectors if len(vectors) == len(boxes) else vectors.T, extra)


def read_hdf5(path: Path) -> Iterator[Picture]:
    """Yield the pictures of an HDF5 file."""
    import h5py  # pip install h5py

    index = path.with_name(f"{path.stem}_imgid2idx.json")
    rows = json.loads(index.read_bytes()) if index.exists() else load_plain(index.with_suffix(".pkl").read_bytes())
    with h5py.File(path, "r") as file:
        for name, row in rows.items():
            part = slice(*map(int, file["pos_boxes"][row])) if "pos_boxes" in file else int(row)
            yield Picture(str(name), file["spatial_features"][part][:, :4], file["image_features"][part], {})


def load_plain(data: bytes) -> Any:
    """Return the plain values in a pickle; one that names any class is refused."""

    class Plain(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            raise pickle.UnpicklingError(f"{module}.{name} is no plain value")

    return Plain(io.BytesIO(data)).load()


def read(path: Path) -> Iterator[Picture]:
    """Yield the pictures of a file or a folder."""
    if path.is_dir():
        for each in sorted(each for each in path.rglob("*") if each.suffix in (".npz", ".tsv") or ".tsv." in each.name):
            yield from read(each)
    elif path.suffix in (".h5", ".hdf5"):
        yield from read_hdf5(path)
    else:
        yield from (read_npz if path.suffix == ".npz" else read_tsv)(path)


def rows_of(picture: Picture, classes: Sequence[str], attributes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a row a region: its label is its class, after its attribute where that is sure enough."""
    extra = picture.extra
    for number, (box, vector) in enumerate(zip(picture.boxes, picture.vectors, strict=True)):
        label = classes[extra["objects_id"][number]] if classes and "objects_id" in extra else ""
        if attributes and "attrs_id" in extra and extra["attrs_conf"][number] >= ATTRIBUTE_FROM:
            label = f"{attributes[extra['attrs_id'][number]]} {label}"
        score = extra["objects_conf"][number] if "objects_conf" in extra else 1.0
        yield {"name": picture.name, "box": box, "vector": vector, "label": label, "score": score}


def convert(
    pictures: Iterable[Picture], output: Path, classes: Sequence[str] = (), attributes: Sequence[str] = ()
) -> int:
    """Write the table of pictures and return its number of rows."""
    count, rows = 0, list[dict[str, Any]]()
    with pq.ParquetWriter(output, SCHEMA, compression="zstd") as writer:
        for picture in pictures:
            rows += rows_of(picture, classes, attributes)
            if len(rows) >= ROWS_AT_ONCE:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                count, rows = count + len(rows), []
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    return count + len(rows)


def names_in(path: Path | None) -> list[str]:
    """Return the names in a file, one a line; of several after commas, the first."""
    return [line.partition(",")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()] if path else []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--classes", type=Path, help="names of classes, one a line")
    parser.add_argument("--attributes", type=Path, help="names of attributes, one a line")
    given = parser.parse_args()
    print(convert(read(given.input), given.output, names_in(given.classes), names_in(given.attributes)), "regions")
