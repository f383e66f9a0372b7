"""The programs of `infra/kubernetes/go.mod`, where they have been built, and what the short ones of them say.

`helm` renders the chart; `kubeconform` holds objects against the schemas of Kubernetes and KubeRay, which are made here
from the files of the same versions. A test that needs a program that is not there is skipped.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

INFRA = Path(__file__).resolve().parents[2] / "infra"
CHART = INFRA / "helm"
FOLDER = Path("~/.cache/multilink/kubernetes").expanduser()
RELEASE, NAMESPACE = "ml", "multilink"
ACCOUNT = f"{RELEASE}-dagster"  # service account of Dagster's pods and runs
NEEDED = ("--set", "postgres.host=db.example")
_CORE = "io.k8s.api."


def built(name: str) -> Path:
    """Return the path of a program or file that `make kubernetes` makes, or skip the test."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is not there: `make kubernetes` builds it (half an hour, once)")
    return path


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm; the result tells whether it went well."""
    return subprocess.run([built("helm"), *arguments], capture_output=True, text=True, check=False)


def template(*arguments: str) -> str:
    """Return the chart's objects under some values, as YAML documents."""
    done = helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *NEEDED, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> dict[tuple[str, str], Any]:
    """Return the objects of YAML documents by kind and name."""
    found = (each for each in yaml.safe_load_all(text) if each)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def kubeconform(text: str, schemas: Path) -> dict[str, Any]:
    """Return kubeconform's report on YAML documents: `summary`, and `resources` that are not valid."""
    location = f"{schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [built("kubeconform"), "-strict", "-summary", "-output", "json", "-schema-location", location, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def write_schemas(folder: Path) -> None:
    """Write a JSON schema for every kind of Kubernetes and of KubeRay, under kubeconform's name for it."""
    definitions = _strict(json.loads(built("swagger.json").read_text(encoding="utf-8"))["definitions"])
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []) if name.startswith(_CORE) else []:
            needed = {each: definitions[each] for each in _reachable(name, definitions)}
            _write(folder, kind, {"$ref": f"#/definitions/{name}", "definitions": needed})
    for path in sorted(built("ray.io_rayjobs.yaml").parent.glob("ray.io_*.yaml")):
        crd = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["spec"]
        for version in crd["versions"]:
            kind = {"group": crd["group"], "version": version["name"], "kind": crd["names"]["kind"]}
            _write(folder, kind, _strict(version["schema"]["openAPIV3Schema"]))


def _write(folder: Path, kind: dict[str, str], schema: dict[str, Any]) -> None:
    words = [kind["kind"], *filter(None, [kind["group"].partition(".")[0]]), kind["version"]]
    (folder / f"{'-'.join(words).lower()}.json").write_text(json.dumps(schema), encoding="utf-8")


def _strict(schema: Any) -> Any:
    """Return an OpenAPI schema as a JSON schema that refuses unknown fields, and takes the numbers the server takes."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", bool(made.get("x-kubernetes-preserve-unknown-fields", False)))
    if made.get("format") == "int-or-string" or "Quantity is a fixed-point" in str(made.get("description", "")):
        made["type"] = ["string", "number"]
    return made


def _reachable(name: str, definitions: dict[str, Any]) -> set[str]:
    found, open_ = {name}, [name]
    while open_:
        new = set(_references(definitions[open_.pop()])) - found
        found |= new
        open_ += new
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target.removeprefix("#/definitions/")
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)
