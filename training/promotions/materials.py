"""The bill of materials of a champion, as CycloneDX (https://cyclonedx.org, ML-BOM): model, data, code and libraries.

Made from the statements on it alone, so that two machines write the same file.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6

from schemas.versions import DISTRIBUTION
from training.promotions.proof import Proof

_SPACE = uuid.UUID("6f0f0f5e-64c0-5d5c-8f0e-5f1f2b4d9c11")  # of serial numbers


def bill_of_materials(proof: Proof) -> str:
    """Return the text of the bill of materials of a champion: JSON, CycloneDX 1.6."""
    statement, evidence = proof.statement, proof.evidence
    model = _component(
        ComponentType.MACHINE_LEARNING_MODEL,
        proof.record.model.name,
        proof.version,
        proof.digest,
        ("statement", statement.digest),
        ("statement number", str(statement.number)),
        ("signed by", ", ".join(statement.signed_by)),
        ("approved by", proof.decision.get("approved_by", "")),
        ("recipe", evidence["configuration"]["recipe"]),
        ("configuration SHA-256", evidence["configuration"]["sha256"]),
        ("trained by version", evidence["configuration"]["code_version"]),
    )
    data = {
        each["dataset"]: each["sha256"] for each in (evidence["trained_on"], *evidence["judged_on"]) if each["dataset"]
    }
    parts = [
        *(
            _component(ComponentType.DATA, name.partition("@")[0], name.partition("@")[2], digest)
            for name, digest in sorted(data.items())
        ),
        _component(ComponentType.APPLICATION, DISTRIBUTION, evidence["code"]["version"], evidence["code"]["sha256"]),
        *(_component(ComponentType.LIBRARY, name, version) for name, version in sorted(evidence["libraries"].items())),
    ]
    bom = Bom(components=parts, serial_number=uuid.uuid5(_SPACE, statement.digest))
    bom.metadata.component = model
    bom.metadata.timestamp = datetime.fromisoformat(statement.predicate["at"])
    bom.register_dependency(model, parts)
    written = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library has no model cards yet: https://github.com/CycloneDX/cyclonedx-python-lib/issues/912
    written["metadata"]["component"]["modelCard"] = {
        "modelParameters": {
            "datasets": [{"ref": each.bom_ref.value} for each in parts if each.type == ComponentType.DATA]
        },
        "quantitativeAnalysis": {"performanceMetrics": list(_metrics(proof.decision.get("checks", ())))},
    }
    return json.dumps(written, indent=1, sort_keys=True) + "\n"


def _component(
    kind: ComponentType, name: str, version: str, digest: str = "", *properties: tuple[str, str]
) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []
    found: Iterable[Property] = (Property(name=f"multilink:{key}", value=value) for key, value in properties if value)
    return Component(
        type=kind, name=name, version=version, bom_ref=f"{name}@{version}", hashes=hashes, properties=found
    )


def _metrics(checks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the measured conditions of a decision, percentage points."""
    for check in checks:
        if (measured := check["measured"]) is not None:
            yield {
                "type": check["name"],
                "value": str(measured["mean"]),
                "confidenceInterval": {"lowerBound": str(measured["low"]), "upperBound": str(measured["high"])},
            }
