"""Small text files of what others rely on: schemas and resolved recipes. `make golden` writes them anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines import recipes as build_recipes
from schemas.configs import resolve
from schemas.documents import document_schema
from schemas.duplicates import DUPLICATE_SCHEMA
from schemas.evaluation import EVALUATION_SCHEMA
from schemas.failures import FAILURE_SCHEMA, Reason
from schemas.images import image_schema
from schemas.leaks import LEAK_SCHEMA
from schemas.links import link_schema
from schemas.retrievals import RETRIEVAL_SCHEMA
from training import recipes as train_recipes

FOLDER = Path(__file__).parent


def schema_text(schema: pa.Schema) -> str:
    lines = [f"{key.decode()} {value.decode()}" for key, value in sorted(schema.metadata.items())]
    for field in schema:
        unit = field.metadata.get(b"unit", b"").decode()
        null = "null" if field.nullable else "not null"
        lines.append(
            f"{field.name}: {field.type} {null}{f' [{unit}]' if unit else ''}: {field.metadata[b'meaning'].decode()}"
        )
    return "\n".join(lines) + "\n"


def recipe_text(config: object) -> str:
    return json.dumps(resolve(config), indent=1, sort_keys=True) + "\n"


GOLDEN: dict[str, Callable[[], str]] = {
    "schema-documents.txt": lambda: schema_text(document_schema({"sentence-extractor": 4})),
    "schema-images.txt": lambda: schema_text(image_schema({"image-extractor": 4})),
    "schema-failures.txt": lambda: schema_text(FAILURE_SCHEMA),
    "schema-duplicates.txt": lambda: schema_text(DUPLICATE_SCHEMA),
    "schema-leaks.txt": lambda: schema_text(LEAK_SCHEMA),
    "schema-evaluation.txt": lambda: schema_text(EVALUATION_SCHEMA),
    "schema-links.txt": lambda: schema_text(link_schema()),
    "schema-retrievals.txt": lambda: schema_text(RETRIEVAL_SCHEMA),
    "failure-reasons.txt": lambda: "".join(f"{reason}\n" for reason in Reason),
}
GOLDEN |= {f"build-{name}.json": lambda make=make: recipe_text(make()) for name, make in build_recipes.RECIPES.items()}
GOLDEN |= {f"train-{name}.json": lambda make=make: recipe_text(make()) for name, make in train_recipes.RECIPES.items()}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    path, text = FOLDER / name, GOLDEN[name]()
    if request.config.getoption("--refresh-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, (
        f"{name} differs; `make golden` writes it anew, then review the change"
    )
