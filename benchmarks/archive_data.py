"""A drawn archive as data set versions: pictures with titles, captions and names of the size that real archives have.

Of a picture there are a title of 6 to 10 words, a caption of 15 to 30, 3 to 6 keywords, one of 2,000 credits, of 20,000
places, of 9,000 days; words are drawn by Zipf's law from 400,000, the commonest of them short as in any language (a
sentence encoder reads 2.1 tokens a word, of a German newspaper 1.6). Names that the archive knows are 102,000: places,
credits, 50,000 persons and 30,000 other keywords. Copies are 64 drawn pictures, in turns. Vectors are drawn with what
makes search hard: groups of very different sizes, a spectrum that falls slowly, and texts that stand apart from all
pictures and are noisier.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from benchmarks.scale_data import write
from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Link, Provenance, Sentence, Split, document_schema, image_schema
from schemas.features import FeatureColumn
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, Manifest, SplitStatistics, commit
from schemas.metadata import METADATA_TYPE
from schemas.tables import FEATURE_PREFIX, to_table

DATASET, IMAGE, TEXT, DIMENSIONS, GROUPS = "archive", "image", "text", 256, 5_000
IN_SHARD, TEXTS = 50_000, 1_000  # pictures of a shard; documents with a text, of the splits val and test
ROWS_PER_GROUP = 256  # of the files, as builds write them
SPREAD = 0.7  # of rows around the centre of their group, in the centres' own spread
TEXT_NOISE, APART = 0.7, 1.0  # in lengths of a row
LAST = 64  # directions, of little variance, in which texts stand apart
DAYS = 9_000  # of pictures, from 2000 on
LONG = 3  # syllables of names: none is a common word
NO_NOUN, NOUNS = 4, 0.45  # letters of the commonest words; share of the other words that are nouns
COPIES, COPY_PX = 64, (256, 192)  # different copies of pictures
FEATURES = {
    "images": (FeatureColumn(name=IMAGE, dimensions=DIMENSIONS),),
    "documents": (FeatureColumn(name=TEXT, dimensions=DIMENSIONS),),
}
_SYLLABLES = (  # noqa: SIM905
    "ba be bi bo bu da de di do du fa fe ga ge gi go ha he hi ka ke ki ko la le li lo ma me mi mo mu na ne ni no pa "
    "pe pi ra re ri ro ru sa se si so ta te ti to tu va ve vi wa we zu schö stü tra brä klo"
).split()


@dataclass(frozen=True)
class World:
    """Where vectors are drawn from."""

    centres: np.ndarray
    shares: np.ndarray
    scales: np.ndarray
    apart: np.ndarray

    @classmethod
    def make(cls) -> World:
        rng = np.random.default_rng(0)
        scales = (1 / np.sqrt(1 + np.arange(DIMENSIONS))).astype(np.float32)
        sizes = 1 / np.arange(1, GROUPS + 1) ** 0.8
        centres = rng.standard_normal((GROUPS, DIMENSIONS), dtype=np.float32) * scales
        apart = np.zeros(DIMENSIONS, np.float32)
        apart[-LAST:] = 1.0
        return cls(centres, sizes / sizes.sum(), scales, apart)

    def rows(self, seed: int, count: int) -> np.ndarray:
        """Return `count` unit vectors around the groups' centres."""
        rng = np.random.default_rng([1, seed])
        noise = rng.standard_normal((count, DIMENSIONS), dtype=np.float32) * self.scales
        return _unit(self.centres[rng.choice(GROUPS, size=count, p=self.shares)] + SPREAD * noise)

    def texts(self, seed: int, rows: np.ndarray) -> np.ndarray:
        """Return texts of rows: each is like one, with noise of its own, and stands apart from all."""
        noise = np.random.default_rng([2, seed]).standard_normal(rows.shape, dtype=np.float32) * self.scales
        noise *= TEXT_NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
        return _unit(rows + noise + APART * self.apart / np.linalg.norm(self.apart))


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


@dataclass(frozen=True)
class Language:
    """The words and names of an archive, the commonest first."""

    words: np.ndarray
    persons: np.ndarray
    keywords: np.ndarray
    places: np.ndarray
    credits: np.ndarray

    @classmethod
    def make(cls) -> Language:
        words = _words(400_000, 1, 1)
        firsts, lasts = np.char.capitalize(_words(4_000, 2)), np.char.capitalize(_words(40_000, 3))
        rng = np.random.default_rng(4)
        pairs = zip(rng.choice(firsts, 60_000), rng.choice(lasts, 60_000), strict=True)
        persons = np.array([*dict.fromkeys(f"{first} {last}" for first, last in pairs)][:50_000])
        keywords = np.concatenate([persons, np.char.capitalize(_words(30_000, 5))])
        rng.shuffle(keywords)
        places = np.array(
            [f"{place}, Land{row % 60}" for row, place in enumerate(np.char.capitalize(_words(20_000, 6)))]
        )
        kinds = rng.choice(["dpa", "Agentur", "Foto", "Archiv"], 2_000)
        credit = [f"{name} {kind}" for name, kind in zip(np.char.capitalize(_words(2_000, 7)), kinds, strict=True)]
        return cls(words, persons, keywords, places, np.array(credit))

    def text(self, rng: np.random.Generator, words: int) -> str:
        return " ".join(_zipf(rng, self.words, words))

    def article(self, rng: np.random.Generator, words: int = 2_000) -> str:
        """Return a text as a German article has it: every fourth word is a noun, none of the commonest words is."""
        found: list[str] = []
        places = np.array([place.partition(",")[0] for place in self.places[:2_000]])
        while len(found) < words:
            drawn = _zipf(rng, self.words, 14)
            sentence = [word.capitalize() if len(word) > NO_NOUN and rng.random() < NOUNS else word for word in drawn]
            pool = (self.persons, self.keywords, places)[int(rng.integers(3))]
            found += [sentence[0].capitalize(), *sentence[1:7], *_zipf(rng, pool, 1)[0].split(), *sentence[7:]]
            found[-1] += "."
        return " ".join(found)


def _words(count: int, seed: int, fewest: int = LONG) -> np.ndarray:
    """Return different words of `fewest` to 5 syllables, the shortest first."""
    rng = np.random.default_rng(seed)
    drawn: dict[str, int] = {}
    while len(drawn) < count:
        lengths = rng.integers(fewest, 6, count)
        rows = zip(rng.choice(_SYLLABLES, (count, 5)), lengths.tolist(), strict=True)
        drawn |= {"".join(row[:length]): length for row, length in rows}
    return np.array(sorted([*drawn][:count], key=drawn.__getitem__))


def _zipf(rng: np.random.Generator, values: np.ndarray, count: int, power: float = 1.0) -> np.ndarray:
    return values[np.searchsorted(_shares(len(values), power), rng.random(count))]


@cache
def _shares(count: int, power: float) -> np.ndarray:
    """Return the sums of the shares of so many values, the commonest first."""
    sums = np.cumsum(1 / np.arange(1, count + 1) ** power)
    return np.asarray(sums / sums[-1])


def make_versions(root: Path, images: int) -> None:
    """Commit version `v1` with so many pictures, and `v2` with one in a hundred more and one in a thousand gone."""
    lake, world, language = Lake.at(str(root)), World.make(), Language.make()
    shards = -(-images // IN_SHARD)
    old = [_shard(world, language, shard, min(IN_SHARD, images - shard * IN_SHARD)) for shard in range(shards)]
    for version in ("v1", "v2"):
        files = list[FileEntry]()
        folder, counts = lake.dataset(DATASET, version), dict.fromkeys(Split, 0)
        for shard, (rows, table) in enumerate(old):
            kept = np.arange(len(rows)) % 1000 != 7 if version == "v2" else np.ones(len(rows), bool)
            own = rows[kept], table.filter(pa.array(kept))
            if version == "v2":
                more = _shard(world, language, 10_000 + shard, len(rows) // 100)
                own = np.concatenate([own[0], more[0]]), pa.concat_tables([own[1], more[1]])
            name = f"{Split.TRAIN}/part-{shard:05d}-of-{shards:05d}.parquet"
            counts[Split.TRAIN] += len(own[0])
            files += _written(folder, name, own, [None] * len(own[0]))
        for number, split in enumerate((Split.VAL, Split.TEST)):
            rows, table = _shard(world, language, 20_000 + number, TEXTS)
            texts = table.column("metadata").combine_chunks().field("title").to_pylist()
            counts[split] = TEXTS
            files += _written(folder, f"{split}/part-00000-of-00001.parquet", (rows, table), texts)
        commit(lake, _manifest(version, files, counts))


def _shard(world: World, language: Language, seed: int, count: int) -> tuple[np.ndarray, pa.Table]:
    """Return vectors and images of so many pictures."""
    rng, rows = np.random.default_rng([3, seed]), world.rows(seed, count)
    persons = _zipf(rng, language.persons, 2 * count, 0.7)
    titles, captions = (rng.integers(low, high, count) for low, high in ((6, 11), (15, 31)))
    ends, words = np.cumsum(titles + captions), _zipf(rng, language.words, int((titles + captions).sum()))
    texts = np.split(words, ends[:-1])
    said = [" ".join(text[:size]).capitalize() for text, size in zip(texts, titles, strict=True)]
    shown = [" ".join(text[size:]) for text, size in zip(texts, titles, strict=True)]
    title = [f"{persons[row]} {text}" if row % 5 < 2 else text for row, text in enumerate(said)]
    caption = [f"{persons[count + row]} {text}" if row % 5 > 2 else text for row, text in enumerate(shown)]
    keywords = np.split(_zipf(rng, language.keywords, 5 * count, 0.9), np.cumsum(rng.integers(3, 7, count - 1)))
    days = np.datetime64("2000-01-01") + rng.integers(0, DAYS, count)
    columns = {
        "title": title, "caption": caption, "credit": _zipf(rng, language.credits, count).tolist(),
        "rights": [None] * count, "date": days.astype(str).tolist(),
        "place": _zipf(rng, language.places, count, 0.9).tolist(),
        "keywords": [list(dict.fromkeys(each.tolist()))[:6] for each in keywords],
    }  # fmt: skip
    metadata = pa.StructArray.from_arrays(
        [pa.array(columns[field.name], field.type) for field in METADATA_TYPE], fields=list(METADATA_TYPE)
    )
    hashes = [hashlib.sha256(f"{seed}/{row}".encode()).hexdigest() for row in range(count)]
    looks = {"hash": "1", "is_flat": False, FEATURE_PREFIX + IMAGE: np.zeros(DIMENSIONS, np.float16)}
    empty = ("source", "format", "width", "height", "original_bytes", "fingerprint", "licence", "jpeg")
    table = to_table([dict.fromkeys(empty) | looks], image_schema(FEATURES["images"])).take(np.zeros(count, np.int64))
    values = {
        "hash": pa.array(hashes), "format": pa.array(["jpeg"] * count), "metadata": metadata,
        "licence": pa.array(rng.choice(["CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "rights reserved"], count)),
        "width": pa.array(rng.integers(300, 6000, count)), "height": pa.array(rng.integers(300, 6000, count)),
        "jpeg": pa.array(_copies()).take(pa.array(np.arange(count) % COPIES)),
        FEATURE_PREFIX + IMAGE: _vectors(rows),
    }  # fmt: skip
    for name, column in values.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), column.cast(table.schema.field(place).type))
    return rows, table


def _copies() -> list[bytes]:
    """Return pictures of coloured fields, as JPEG."""
    rng, found = np.random.default_rng(8), []
    for _ in range(COPIES):
        fields = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize(COPY_PX, Image.Resampling.BICUBIC)
        fields.save(data := io.BytesIO(), "JPEG")
        found.append(data.getvalue())
    return found


def _vectors(rows: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float16).ravel()), DIMENSIONS)


def _written(
    folder: Folder, name: str, own: tuple[np.ndarray, pa.Table], texts: Sequence[str | None]
) -> list[FileEntry]:
    """Write pictures and their documents, of which some have a text that is linked."""
    rows, table = own
    split = Split(name.partition("/")[0])
    vectors = World.make().texts(len(rows), rows) if texts[0] is not None else rows
    documents = [
        to_row(
            Document(
                id=key,
                dataset=DATASET,
                sentences=(Sentence(text),) if text is not None else (),
                images=(ImageRef(key),),
                links=None if text is None else (Link(0, 0),),
                provenance=Provenance(source="benchmark", record_id=key),
                split=split,
            )
        )
        | {FEATURE_PREFIX + TEXT: [] if text is None else [vector.astype(np.float16)]}
        for key, text, vector in zip(table.column("hash").to_pylist(), texts, vectors, strict=True)
    ]
    made = {"documents": to_table(documents, document_schema(FEATURES["documents"])), "images": table}
    return [write(folder, f"{kind}/{name}", each, ROWS_PER_GROUP) for kind, each in made.items()]


def _manifest(version: str, files: list[FileEntry], counts: dict[Split, int]) -> Manifest:
    return Manifest(
        dataset=DATASET, version=version, files=tuple(sorted(files)),
        splits={str(split): _statistics(count) for split, count in counts.items()},
        failures={}, stages={}, features=FEATURES, config={}, inputs={},
        schema_versions={"documents": 1, "images": 1},
    )  # fmt: skip


def _statistics(count: int) -> SplitStatistics:
    return SplitStatistics(
        documents=count, images=count, sentences=count, unique_images=count, median_sentences=1, median_images=1,
        mean_sentences=1, mean_images=1, max_sentences=1, max_images=1, links=count,
        documents_with_known_links=count, density=None,
    )  # fmt: skip
