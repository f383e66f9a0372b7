"""The files of a registered version and of the run that trained it.

With the version: both towers as one logged model, its signature, digests, reports, and the model card: what a person
must know before using it, as Markdown (`model_card.md.j2`). The card is written when a model is registered, and again
with the scores when it has been evaluated on the data it is for. So is `calibration.json`, from
which links have their probabilities. With the run:

    evaluation/<data set>-<version>-<split>/evaluation.parquet    every number, `training.metrics.intervals`
"""

import platform
import re
import tempfile
import time
import zipfile
from collections.abc import Mapping
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import mlflow
import mlflow.pyfunc
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from mlflow.entities import Metric
from mlflow.models import ModelSignature
from mlflow.types.schema import Array, ColSpec, DataType, Map, Object, Property, Schema

from schemas.configs import resolve
from schemas.messages import IntegrityError, UsageError
from schemas.overrides import flatten
from training.config import TrainConfig
from training.evaluation.baselines import NOSTRUCT, Baseline
from training.evaluation.evaluate import RANDOM, EvaluationReport, kind_of, means_of
from training.linking import rows
from training.metrics.calibration import FILE_NAME, Calibration
from training.metrics.links import ScoreKind
from training.mlflow.loading import load_version
from training.mlflow.registry import (
    DATASET_DIGEST_TAG,
    challenge,
    find_version,
    logged_model,
    make_name,
    versions,
)
from training.mlflow.stored import model_name
from training.model import LinkModel, folder_digest
from training.promotions.loaded import LoadedModel
from training.promotions.record import MODEL_DIGEST_TAG, TAINTED, VERSION_TAG, ModelVersion

CARD_FILE = "model_card.md"
OWN = ("links", "pairs")
SHOWN = (*OWN, NOSTRUCT, RANDOM, *map(str, Baseline))
METRICS = {metric for kind in ScoreKind for metric in kind.metrics}
# The last one is for signed statements.
PACKAGES = ("torch", "numpy", "scipy", "pyarrow", "pillow", "msgspec", "obstore", "securesystemslib")
CODE = ("multilink", "schemas", "networks", "training")  # packages that loading a model imports
LOADER = "multilink_model"  # `carried.py`, as it is called with a model
MODEL_ARTIFACT = "model"
DESCRIPTION_CHARACTERS = 5_000  # that MLflow's tables hold
FOLDER = "evaluation"
_NOT_IN_A_NAME = re.compile(r"[^0-9A-Za-z_./-]+")
_AS_METRICS = ("retrieval", "refined retrieval", "relations", "calibration")


def model_card(
    model: LinkModel, version: ModelVersion, report: EvaluationReport | None, *, has_tables: bool = True
) -> str:
    """Return the card of a registered model, with the scores of its evaluation where there is one.

    Without its tables of settings, environment and tags it fits into MLflow's description of a version.
    """
    card, tags = (
        model.card,
        {name: value for name, value in version.tags.items() if name != TAINTED},
    )
    environment = Environment(
        loader=PackageLoader("training.mlflow", "."), undefined=StrictUndefined, trim_blocks=True, autoescape=False
    )
    return environment.get_template("model_card.md.j2").render(
        version=version,
        data=card.data,
        config=card.config,
        distinguishing_settings=card.config.traits,
        way=model.described(),
        similarity=card.config.similarities,
        epoch=card.epoch,
        words=len(model.vocabulary or ()),
        report=report,
        rows=[
            row
            for row in (() if report is None else report.rows)
            if row.value is not None and row.metric in METRICS and row.measure in SHOWN and "=" not in row.group
        ],
        own=OWN,
        tables={
            "Settings": flatten(resolve(card.config)),
            "Environment it was registered in": {"Python": platform.python_version()}
            | dict(each.partition("==")[::2] for each in requirements_of(card.config)),
            "Tags": tags,
        }
        if has_tables
        else {},
    )


def register(
    client: mlflow.MlflowClient, directory: Path, *, name: str, run_id: str, tags: Mapping[str, str]
) -> ModelVersion:
    """Log a saved model in its run, register it as the next version of `name`, and make it the challenger.

    With it are logged its signature, an input example, the environment and a model card; the digests of its files and
    of its data set become tags.
    """
    model = LinkModel.load(directory)
    digests = {DATASET_DIGEST_TAG: model.card.data.manifest_digest, MODEL_DIGEST_TAG: folder_digest(directory)}
    with (
        tempfile.TemporaryDirectory(prefix="multilink-code-") as code,
        mlflow.start_run(run_id=run_id, log_system_metrics=False),
    ):
        logged = mlflow.pyfunc.log_model(
            name=MODEL_ARTIFACT,
            loader_module=LOADER,
            code_paths=write_code(Path(code)),
            data_path=str(directory),
            signature=signature_of(model),
            input_example=pd.DataFrame([rows.example(model)]),
            pip_requirements=requirements_of(model.card.config),
        )
    make_name(client, name)
    stored = client.create_model_version(
        name, source=logged.model_uri, run_id=run_id, tags={**tags, **digests}, model_id=logged.model_id
    )
    version = find_version(client, name, str(stored.version))
    complete(client, version, model)
    return version


def complete(client: mlflow.MlflowClient, version: ModelVersion, model: LinkModel | None = None) -> None:
    """Do what follows the making of a version: its card, and the alias; repeated after a death it changes nothing."""
    if not client.get_model_version(version.name, version.version).description:
        write_card(client, version, model or load_version(version).model, None)
    challenge(client, version.name)


def attach(client: mlflow.MlflowClient, version: ModelVersion, path: Path, name: str | None = None) -> None:
    """Keep a file, such as an evaluation report, among a registered version's files, or in the folder `name` there."""
    client.log_model_artifact(logged_model(client, version).model_id, str(path), name)


def write_card(
    client: mlflow.MlflowClient, version: ModelVersion, model: LinkModel, report: EvaluationReport | None
) -> None:
    """Write the card of a registered version, with the scores of its evaluation where there is one.

    On MLflow's page of the version it is the description.
    """
    client.update_model_version(
        version.name, version.version, model_card(model, version, report, has_tables=False)[:DESCRIPTION_CHARACTERS]
    )
    with tempfile.TemporaryDirectory(prefix="multilink-card-") as scratch:
        card = Path(scratch) / CARD_FILE
        card.write_text(model_card(model, version, report), encoding="utf-8")
        attach(client, version, card)


def signature_of(model: LinkModel) -> ModelSignature:
    """Return which columns a model takes and gives, with their types."""
    vectors, texts = Array(Array(DataType.double)), Array(DataType.string)
    types = {
        rows.SENTENCES: texts,
        rows.SENTENCE_VECTORS: vectors,
        rows.IMAGE_VECTORS: vectors,
        rows.REGION_VECTORS: Array(vectors),
        rows.REGION_LABELS: Array(texts),
        rows.PICTURES: texts,
        rows.ROLES: texts,
        rows.LANGUAGE: DataType.string,
    }
    columns = [ColSpec(types[name], name, required=required) for name, required in rows.inputs(model).items()]
    link = Object(
        [
            Property("sentence", DataType.long),
            Property("image", DataType.long),
            Property("similarity", DataType.double),
            Property("probability", DataType.double, required=False),
            Property("word", DataType.string, required=False),
            Property(rows.RELATIONS, Map(DataType.double), required=False),
        ]
    )
    answers = {
        rows.READ: Array(DataType.long),
        rows.SIMILARITIES: vectors,
        rows.LINKS: Array(link),
        rows.MODEL: DataType.string,
        rows.CAUTION: DataType.string,
    }
    return ModelSignature(
        inputs=Schema(columns), outputs=Schema([ColSpec(kind, name) for name, kind in answers.items()])
    )


def write_code(folder: Path) -> list[str]:
    """Write the module that loads a model and an archive of the code that it needs, and return their paths.

    The same code gives the same bytes.
    """
    loader, archive = folder / f"{LOADER}.py", folder / "multilink.zip"
    loader.write_bytes(Path(__file__).with_name("carried.py").read_bytes())
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for package in CODE:
            root = Path(str(files(package)))
            for path in sorted(root.rglob("*.py")):
                name = zipfile.ZipInfo(f"{package}/{path.relative_to(root).as_posix()}")  # of no clock time
                zipped.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return [str(loader), str(archive)]


def requirements_of(config: TrainConfig) -> list[str]:
    """Return what must be installed to load a model: the training core and what its parts need, as installed here.

    This project is none of it, since its code is logged with the model: a distribution's name that an index does not
    have may be taken by anybody tomorrow.
    """
    packages = dict.fromkeys([*PACKAGES, *(package for part in config.parts for package in part.packages)])
    plugins = dict.fromkeys(part.plugin for part in config.parts if part.plugin is not None)
    return [*map(_as_installed, packages), *plugins]


def _as_installed(package: str) -> str:
    try:
        return f"{package}=={metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package


def record_evaluation(
    client: mlflow.MlflowClient, loaded: LoadedModel, report: EvaluationReport, calibration: Calibration | None
) -> None:
    """Keep an evaluation with the run of a registered model, and scores and calibration with the model itself.

    Scores and the calibration are kept for the data set version it was trained on alone, the table for any.
    """
    version, dataset = loaded.version, (report.dataset, report.dataset_version)
    if version is None or version.run_id is None:
        return
    is_own = "@".join(dataset) == loaded.model.card.data.reference
    with tempfile.TemporaryDirectory(prefix="multilink-") as scratch:
        report.write(Path(scratch, FOLDER, f"{report.dataset}-{report.dataset_version}-{report.split}"))
        client.log_artifacts(version.run_id, str(Path(scratch, FOLDER)), FOLDER)
        if is_own and calibration is not None:
            path = Path(scratch, FILE_NAME)
            path.write_text(calibration.to_json(), encoding="utf-8")
            attach(client, version, path)
    if is_own:
        about = int(time.time() * 1000), 0, logged_model(client, version).model_id, *dataset
        client.log_batch(version.run_id, metrics=[Metric(*each, *about) for each in metric_values(report).items()])


def metric_values(report: EvaluationReport) -> dict[str, float]:
    """Return the numbers a run shows as metrics, named as MLflow allows: means with their intervals, other measures."""
    found = {name: value for name, value in report.values().items() if name.startswith(_AS_METRICS)}
    for metric, score in means_of(report.rows, kind_of(report.rows)).items():
        ends = {metric: score.value, f"{metric}_low": score.low, f"{metric}_high": score.high}
        found |= {name: value for name, value in ends.items() if value is not None}
    return {_NOT_IN_A_NAME.sub("_", f"{report.split} {name}"): value for name, value in found.items()}


def load_nostruct(client: mlflow.MlflowClient, loaded: LoadedModel, reference: str) -> tuple[LinkModel, str]:
    """Return the newest NoStruct model that was trained on NAME@VERSION, and its version in words.

    Args:
        client: of the registry.
        loaded: the model that it is compared with.
        reference: data set version that both are judged on.

    Raises:
        UsageError: there is none, or it cannot be loaded.
    """
    if loaded.model.card.config.objective_name == NOSTRUCT:
        raise UsageError("it is the model that is judged")
    dataset, _, version = reference.partition("@")
    name = model_name(dataset, NOSTRUCT)
    for found in versions(client, name=name, **{VERSION_TAG: version}):
        try:
            return load_version(found).model, f"version {found.version}"
        except (UsageError, IntegrityError) as problem:
            raise UsageError(f"{found.uri} cannot be loaded: {problem}") from problem
    raise UsageError(f"no model {name} of this data set version is registered")
