"""Small records of promotions for tests: statements in a folder, and a registered model that a registry would have."""

from pathlib import Path
from typing import Any

from securesystemslib.signer import CryptoSigner

from schemas.lake import Folder
from training.promotions.chain import Chain
from training.promotions.record import ADOPTED, ModelVersion, Registered


def version(number: str, *, digest: str = "", run: str = "") -> ModelVersion:
    tags = {"model_digest": digest or f"d{number}"}
    return ModelVersion(name="linker", version=number, run_id=run or f"r{number}", tags=tags)


def registered(home: Path, *, count: int = 0, **changed: Any) -> Registered:
    versions = {number: version(number) for number in "12345"}
    tags = {"promotions": str(home), "promotions_count": str(count)}
    own = {"name": "linker", "created": "7", "aliases": {"champion": "4"}, "tags": tags, "versions": versions}
    return Registered(**{"registry": f"sqlite:///{home}", **own, **changed})


def state(
    home: Path, event: str, version: str, signer: CryptoSigner | None = None, model: Any = None, **predicate: Any
) -> None:
    chain = Chain(Folder(str(home)))
    statements, about = chain.statements(), {"name": "linker", "created": "7", **(model or {})}
    if event != ADOPTED:
        about = {"version": version, "digest": f"d{version}", "run": f"r{version}", **about}
    name = f"models:/{about['name']}/{version}"
    subject = [{"name": name, "digest": {"sha256": f"d{version}"}}]
    last = statements[-1] if statements else None
    assert chain.append(last, subject, {"event": event, "model": about, **predicate}, signer)


def decided(version: str, before: str | None, best: str | None, best_now: str | None = None) -> dict[str, Any]:
    names = {"version": version, "champion_before": before, "best_before": best, "best": best_now or best}
    return {**names, "dataset": "diy@v1", "split": "val", "checks": [], "policy": {}}
