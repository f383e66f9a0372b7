"""Small text files of what others rely on: schemas and resolved recipes. `make golden` writes them anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from orchestration.config import DatasetSettings, Settings
from orchestration.dagster.definitions import make_definitions
from pipelines.config import RECIPES
from pipelines.ledger import LEDGER_SCHEMA
from schemas.configs import resolve
from schemas.documents import document_schema, image_schema
from schemas.duplicates import DUPLICATE_SCHEMA, LEAK_SCHEMA, NEAR_COPY_SCHEMA
from schemas.failures import FAILURE_SCHEMA, Reason
from schemas.features import FeatureColumn, FeatureKind, Storage
from schemas.raw import RAW_SCHEMA, RETRIEVAL_SCHEMA
from training import recipes as train_recipes
from training.linking.records import LINK_SCHEMA, LINKED_SCHEMA, RELINKED_SCHEMA
from training.metrics.intervals import EVALUATION_SCHEMA

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


SENTENCE_VECTOR = FeatureColumn(name="sentence-extractor", dimensions=4)
IMAGE_VECTOR = FeatureColumn(name="image-extractor", dimensions=4)
EVERY_KIND = (
    FeatureColumn(name="detector", kind=FeatureKind.REGIONS, dimensions=4),
    FeatureColumn(name="small", dimensions=4, storage=Storage.INT8),
    FeatureColumn(name="exact", dimensions=4, storage=Storage.FLOAT32),
    FeatureColumn(name="likely", kind=FeatureKind.CLASSES, dimensions=0),
)


def asset_graph_text() -> str:
    """Each asset with what it needs, its pool and retries; each check, job, schedule and sensor."""
    definitions = make_definitions(Settings(datasets=(DatasetSettings(name="diy"), DatasetSettings(name="wiki"))))
    graph, repository = definitions.resolve_asset_graph(), definitions.get_repository_def()
    lines = []
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        needs = ", ".join(sorted(parent.to_user_string() for parent in node.parent_keys)) or "nothing"
        if not node.is_materializable:
            lines.append(f"asset {key.to_user_string()} <- {needs}; observed")
            continue
        op = node.assets_def.op
        retries = 0 if op.retry_policy is None else op.retry_policy.max_retries
        lines.append(f"asset {key.to_user_string()} <- {needs}; by {op.name}, pool {op.pool}, retries {retries}")
    lines += [f"check {key.to_user_string()}" for key in sorted(graph.asset_check_keys)]
    for job in sorted(repository.get_all_jobs(), key=lambda job: job.name):
        if not job.name.startswith("__"):
            lines.append(f"job {job.name}: {', '.join(sorted(node.name for node in job.nodes))}")
    lines += [f"schedule {each.name}: {each.cron_schedule} -> {each.job_name}" for each in repository.schedule_defs]
    for sensor in repository.sensor_defs:
        made = ", ".join(job.name for job in sensor.jobs) if sensor.has_jobs else "runs of assets"
        lines.append(f"sensor {sensor.name} -> {made}")
    return "\n".join(lines) + "\n"


GOLDEN: dict[str, Callable[[], str]] = {
    "schema-documents.txt": lambda: schema_text(document_schema([SENTENCE_VECTOR])),
    "schema-images.txt": lambda: schema_text(image_schema([IMAGE_VECTOR])),
    "schema-features.txt": lambda: schema_text(image_schema(EVERY_KIND)),
    "schema-failures.txt": lambda: schema_text(FAILURE_SCHEMA),
    "schema-raw.txt": lambda: schema_text(RAW_SCHEMA),
    "schema-duplicates.txt": lambda: schema_text(DUPLICATE_SCHEMA),
    "schema-near-copies.txt": lambda: schema_text(NEAR_COPY_SCHEMA),
    "schema-leaks.txt": lambda: schema_text(LEAK_SCHEMA),
    "schema-evaluation.txt": lambda: schema_text(EVALUATION_SCHEMA),
    "schema-links.txt": lambda: schema_text(LINK_SCHEMA),
    "schema-relinked.txt": lambda: schema_text(RELINKED_SCHEMA),
    "schema-linked-documents.txt": lambda: schema_text(LINKED_SCHEMA),
    "schema-ledger.txt": lambda: schema_text(LEDGER_SCHEMA),
    "schema-retrievals.txt": lambda: schema_text(RETRIEVAL_SCHEMA),
    "asset-graph.txt": asset_graph_text,
    "failure-reasons.txt": lambda: "".join(f"{reason}\n" for reason in Reason),
}
GOLDEN |= {f"build-{name}.json": lambda make=make: recipe_text(make()) for name, make in RECIPES.items()}
GOLDEN |= {f"train-{name}.json": lambda make=make: recipe_text(make()) for name, make in train_recipes.RECIPES.items()}


@pytest.mark.filterwarnings("ignore:Specifying a partitions_def on an AssetCheckSpec")
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    path, text = FOLDER / name, GOLDEN[name]()
    if request.config.getoption("--refresh-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, (
        f"{name} differs; `make golden` writes it anew, then review the change"
    )
