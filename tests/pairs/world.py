"""A small lake with everything around it: a user's folder, a host on loopback, settings; and what can happen to it.

What happens is an operation: a function of a `World`. What holds whatever happened is an invariant: a function that
raises. The tests put operations together.
"""

import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builds import build_of, quiet
from corpus_files import warc_of
from lake_bytes import bytes_of
from loopback import answering
from PIL import Image

from pipelines import run, sweep
from pipelines.exports.export import export_version
from pipelines.exports.export import replicate as copy_version
from pipelines.exports.subset import EmptySubsetError, Selection, write_subset
from pipelines.forgetting.forget import forget as forget_named
from pipelines.images import inspect
from pipelines.run import BuildSummary
from pipelines.shards import writing as composing
from pipelines.sources.takedowns import parse_takedowns
from pipelines.web.requests import REMEMBERED_S
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import Manifest, read_manifest, verify

TWO_DAYS_S = 2 * 86_400.0
PLAIN = ("features.images=", "features.sentences=", "shards.documents=2")
WORDS = "We cut board number {} with a saw, sand it well and paint it twice in a colour that we like best of all."


@cache
def picture(name: str) -> bytes:
    """Return a PNG unlike those of other names."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    colours = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(colours).resize((96, 72), Image.Resampling.BICUBIC).save(stream, "png")
    return stream.getvalue()


@cache
def crawl() -> bytes:
    """Return a WARC of one page with one picture."""
    host = "http://crawled.example"
    paragraphs = "".join(f"<p>{WORDS.format(number)}</p>" for number in range(8))
    page = f"<html lang=en><body><article><h1>A shelf</h1>{paragraphs}<p>It stands. <img src='{host}/a.png'></p>"
    return warc_of({f"{host}/page": ("text/html", page.encode()), f"{host}/a.png": ("image/png", picture("a"))})


@dataclass
class Host:
    """A host on loopback; `late.png` fails for now, in a way that is luck.

    Attributes:
        luck: how: a status of 500 and more, or 0 for an answer that breaks off.
    """

    luck: int = 503
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str) -> tuple[int, bytes, int]:
        """Return the status, the body and the length that is announced."""
        if path == "/late.png":
            return (self.luck, b"", 0) if self.luck else (200, b"half", 99)
        body = crawl() if path == "/crawl.warc.gz" else picture(path) if path.endswith(".png") else b""
        return 200 if body else 404, body, len(body)


@contextmanager
def serving() -> Iterator[Host]:
    host = Host()

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        status, body, length = host.answer(request.path)
        return status, body, {"Content-Length": str(length), "Connection": "close"}

    with answering(answer) as host.port:
        yield host


@dataclass(frozen=True)
class Inputs:
    """All that decides what a fresh lake gives.

    Attributes:
        ids: of documents in the user's file; each shows a picture of its name, and one of the host's.
        changed: ids whose picture has other bytes under the same name.
        settings: of the build.
        listed: lines of the takedown list.
        pillow: version of a library that makes bytes.
    """

    ids: tuple[str, ...] = ("A", "B", "book#3", "late")
    changed: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()
    listed: tuple[str, ...] = ()
    pillow: str = ""


@dataclass
class World:
    """A lake and what is around it; `inputs` say all that a build of it depends on, luck apart."""

    root: Path
    host: Host
    patch: pytest.MonkeyPatch
    inputs: Inputs = field(default_factory=Inputs)
    manifests: dict[str, bytes] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)

    @property
    def lake(self) -> Lake:
        return Lake.at(str(self.root / "lake"))

    @property
    def second(self) -> Lake:
        return Lake.at(str(self.root / "second"))

    def change(self, **changes: Any) -> None:
        self.inputs = replace(self.inputs, **changes)

    def build(self, lake: Lake | None = None, *, workers: int = 1) -> BuildSummary:
        """Build the user's documents as the inputs are now."""
        write_own(self.root / "own", self.inputs, self.host)
        settings = sorted(self.inputs.settings)
        if self.inputs.listed:
            settings.append(f"takedown_list={self.root / 'own' / 'list.txt'}")
        return self.build_of(
            "documents", str(self.root / "own" / "documents.jsonl"), *settings, lake=lake, workers=workers
        )

    def build_of(
        self, name: str, documents: str, *settings: str, lake: Lake | None = None, workers: int = 1
    ) -> BuildSummary:
        with self.patch.context() as patch:
            if self.inputs.pillow:
                upgrade_code(patch, self.inputs.pillow)
            return build_of(
                name, lake or self.lake, f"source.documents={documents}", "http.attempts=1",
                f"http.allow_hosts=127.0.0.1:{self.host.port}", "http.requests_per_second=1000",
                "max_failure_share=0.9", *PLAIN, *settings, workers=workers,
            )  # fmt: skip


def upgrade_code(patch: pytest.MonkeyPatch, version: str) -> None:
    """Have another library, and code of our own that makes other bytes of a picture's copy."""
    encode = inspect.encode_jpeg
    patch.setattr(inspect, "encode_jpeg", lambda image, quality: encode(image, quality=quality - 1))
    patch.setattr(inspect, "copy_code", lambda: version)
    patch.setattr(composing, "reached_digest", lambda *_: version)
    for module in (inspect, composing):
        libraries = module.picture_libraries
        patch.setattr(module, "picture_libraries", lambda known=libraries: {**known(), "pillow": version})


def write_own(folder: Path, inputs: Inputs, host: Host) -> None:
    """Write a user's folder: documents, pictures and a takedown list."""
    folder.mkdir(exist_ok=True)
    lines = list[str]()
    for key in inputs.ids:
        name = f"{key.replace('#', '-')}.png"
        (folder / name).write_bytes(picture(f"{key} changed" if key in inputs.changed else key))
        images = [{"path": name}, {"url": f"{host.url}/late.png" if key == "late" else f"{host.url}/{name}"}]
        images += [{"path": "missing.png"}] if key == "book#3" else []
        lines.append(json.dumps({"id": key, "sentences": [f"This is of {key} alone."], "images": images}))
    (folder / "documents.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "list.txt").write_text("".join(f"{line}\n" for line in inputs.listed), encoding="utf-8")


# Operations


def capture(world: World) -> None:
    """A crawl is captured by its address, and built."""
    world.build_of("web", f"{world.host.url}/crawl.warc.gz")


def takedown(world: World) -> None:
    """A document is listed."""
    world.change(listed=("id:B",))
    world.build()


def forget(world: World) -> None:
    """The user deletes a document, and the lake forgets it."""
    world.change(ids=tuple(key for key in world.inputs.ids if key != "book#3"))
    forget_named(world.lake, parse_takedowns([b"id:book#3"], name="list"), dry_run=False, say=quiet)
    world.forgotten.add("book#3")


def sweep_up(world: World) -> None:
    """What no version needs is deleted."""
    sweep.sweep_lake(world.lake, dry_run=False, now=time.time() + TWO_DAYS_S)


def replicate(world: World) -> None:
    """All versions are copied to a second lake."""
    copy_version(world.lake, "documents", world.second, say=quiet)


def subset(world: World) -> None:
    """Half of the latest version becomes one of its own."""
    manifest, folder = read_manifest(world.lake, "documents")
    try:
        write_subset(world.lake, manifest, folder, Selection(share=0.5), say=quiet)
    except EmptySubsetError:
        write_subset(world.lake, manifest, folder, Selection(share=0.99), say=quiet)


def export_and_import(world: World) -> None:
    """The latest version is exported, and built from that in the same lake."""
    manifest, folder = read_manifest(world.lake, "documents")
    out = world.root / f"out-{manifest.version}"
    export_version(manifest, folder, Folder(str(out)), form="obelics", say=quiet)
    world.build_of("obelics", str(out))
    shutil.rmtree(out)


def luck(world: World) -> None:
    """A host fails in another way, and what it said is not remembered any more."""
    world.host.luck = {503: 0, 0: 500, 500: 503}[world.host.luck]
    world.build()


def upgrade(world: World) -> None:
    """A library and code that make bytes are upgraded."""
    world.change(pillow="99.0")
    world.build()


def settings(world: World) -> None:
    """A setting changes."""
    world.change(settings=world.inputs.settings | {"documents.min_images=2", "dedupe.radius=5"})
    world.build()


def changed_picture(world: World) -> None:
    """Pictures have other bytes under the same names: of a document that is kept, and of one that is forgotten."""
    world.change(changed=frozenset({"A", "book#3"}))
    world.build()


def kill(world: World) -> None:
    """A build is killed before it commits: nothing is cleaned up."""
    kept = world.root / "as it was killed"

    def end(*_: Any) -> None:
        shutil.copytree(world.root / "lake", kept)
        raise KeyboardInterrupt

    world.change(settings=world.inputs.settings | {"splits.seed=5"})
    with world.patch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run, "write_cards", end)
        world.build()
    shutil.rmtree(world.root / "lake")
    kept.rename(world.root / "lake")


OPERATIONS: tuple[Callable[[World], None], ...] = (
    capture, takedown, forget, sweep_up, replicate, subset, export_and_import, luck, upgrade, settings,
    changed_picture, kill,
)  # fmt: skip


# Invariants


def lakes(world: World) -> list[Lake]:
    return [lake for lake in (world.lake, world.second) if lake.root.exists()]


def versions(lake: Lake) -> Iterator[tuple[str, Manifest, Folder]]:
    for name in lake.dataset_names():
        for version in lake.versions(name):
            reference = f"{name}@{version}"
            yield reference, *read_manifest(lake, reference)


def is_intact(world: World) -> None:
    for lake in lakes(world):
        for reference, manifest, folder in versions(lake):
            assert list(verify(manifest, folder)) == [], reference


def manifests_stay(world: World) -> None:
    """Of one name there is one content, whenever and in whichever lake."""
    for lake in lakes(world):
        for reference, _, folder in versions(lake):
            text = folder.read(MANIFEST)
            assert world.manifests.setdefault(reference, text) == text, reference


def contents_are_named_apart(world: World) -> None:
    """Versions of other names have other settings or inputs, and so say it."""
    said = [json.dumps([m.config, m.inputs], sort_keys=True) for lake in lakes(world)[:1] for _, m, _ in versions(lake)]
    assert len(said) == len(set(said))


def nothing_forgotten_is_there(world: World) -> None:
    marks = [mark for key in world.forgotten for mark in (key.encode(), f"of {key} alone".encode())]
    shown = [name for key in world.forgotten for name in (key, f"{key} changed", f"/{key.replace('#', '-')}.png")]
    marks += [hashlib.sha256(picture(name)).hexdigest().encode() for name in shown]
    for path, data in bytes_of(world.lake).items() if marks else ():
        for mark in marks:
            assert mark not in data and mark.decode() not in path, (mark, path)


INVARIANTS = (is_intact, manifests_stay, contents_are_named_apart, nothing_forgotten_is_there)


def check(world: World) -> None:
    for invariant in INVARIANTS:
        invariant(world)


def forget_no_failure(patch: pytest.MonkeyPatch) -> None:
    """Let every build ask anew for what failed."""
    for reason in REMEMBERED_S:
        patch.setitem(REMEMBERED_S, reason, -1.0)
