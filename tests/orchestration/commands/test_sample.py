"""A page of documents drawn at random shows them with their pictures and links."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from orchestration.cli import app
from pipelines.shards.manifest import size_of, summarise
from pipelines.shards.writing import write_part
from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Link, Provenance, Sentence, Split, document_schema, image_schema
from schemas.lake import Lake
from schemas.manifest import Manifest, SplitStatistics, commit, version_name
from schemas.tables import to_table

LINKS = (Link(0, 0), Link(1, 0))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Write nine documents in three parts of train and one of test, each with a picture of its own."""
    home, files, statistics = Lake.at(str(tmp_path / "lake")), [], {}
    config = {"dataset": "own"}
    version = version_name(config, {}, {})
    for split, parts in ((Split.TRAIN, 2), (Split.VAL, 0), (Split.TEST, 1)):
        sizes: dict[object, int] = {}
        for part in range(parts):
            rows, pictures = [], []
            for number in range(3):
                name = f"{split}-{part}-{number}"
                buffer = io.BytesIO()
                Image.new("RGB", (40, 30), (80 * part, 80 * number, 9)).save(buffer, "JPEG")
                key = hashlib.sha256(name.encode()).hexdigest()
                document = Document(
                    id=name, dataset="own", sentences=(Sentence("<b>One</b> & two."), Sentence("Three.")),
                    images=(ImageRef(key),), links=LINKS if number else None, provenance=Provenance("own", name),
                    split=split,
                )  # fmt: skip
                rows.append(to_row(document))
                pictures.append({"hash": key, "is_flat": False, "jpeg": buffer.getvalue()})
                sizes[size_of(document)] = sizes.get(size_of(document), 0) + 1
            name = f"part-{part:05d}-of-{parts:05d}.parquet"
            folder = home.dataset("own", version)
            for table, schema, found in (("documents", document_schema(), rows), ("images", image_schema(), pictures)):
                path = f"{table}/{split}/{name}"
                files.append(write_part(folder, path, [to_table(found, schema)], schema))
        statistics[str(split)] = summarise(sizes, 0)  # type: ignore[arg-type]
    assert isinstance(statistics["test"], SplitStatistics)
    commit(
        home,
        Manifest(
            dataset="own", version=version, files=tuple(sorted(files)), splits=statistics, failures={}, stages={},
            config=config, inputs={}, schema_versions={},
        ),
    )  # fmt: skip
    return home


def draw(lake: Lake, output: Path, *options: str) -> list[str]:
    arguments = ["datasets", "sample", "own", "--lake", lake.root.uri, "--output", str(output), "--json", *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found: list[str] = json.loads(result.stdout.splitlines()[-1])["documents"]
    return found


def test_a_seed_draws_the_same_documents_and_another_one_others(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    first = draw(lake, path, "--documents", "4")
    page = path.read_text(encoding="utf-8")
    assert len(set(first)) == 4
    assert page.count("<article") == 4
    assert page.count("data:image/jpeg") == 4
    assert all(f"<code>{name}</code>" in page for name in first)
    assert "<b>One</b>" not in page
    assert draw(lake, path, "--documents", "4") == first
    assert path.read_text(encoding="utf-8") == page
    assert draw(lake, path, "--documents", "3") == first[:3]
    assert any(draw(lake, path, "--documents", "4", "--seed", str(seed)) != first for seed in (1, 2, 3))


def test_links_are_drawn_where_they_are_known(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    found = draw(lake, path, "--documents", "99", "--split", "train")
    page = path.read_text(encoding="utf-8")
    assert sorted(found) == [f"train-{part}-{number}" for part in range(2) for number in range(3)]
    assert page.count('class="edge known"') == 4 * len(LINKS) + 1  # and one in the legend
    assert page.count("links unknown") == 2
    assert "predicted" not in page.split("</style>")[1]
