import json
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest

from schemas.errors import NotFoundError, UsageError
from schemas.lake import Lake
from training.registry.promote import DECISION_TAG, promote
from training.registry.store import find_version

Register = Callable[[Path], str]


def _aliases(client: mlflow.MlflowClient) -> dict[str, str]:
    return {alias: str(version) for alias, version in client.get_registered_model("linker").aliases.items()}


def _stored(client: mlflow.MlflowClient, version: str) -> dict[str, object]:
    """Return the decision as the version's tag and as the run's artefact; they must agree."""
    found = find_version(client, "linker", version)
    text = mlflow.artifacts.load_text(f"runs:/{found.run_id}/promotion/linker-{version}.json")
    assert json.loads(text) == json.loads(found.tags[DECISION_TAG])
    return dict(json.loads(text))


def test_first_champion_then_an_equal_one_and_a_worse_one(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, untrained: Path
) -> None:
    first, second, bad = register_model(trained), register_model(trained), register_model(untrained)
    lines: list[str] = []
    promotion = promote(client, "linker", first, say=lines.append)
    assert promotion.is_champion and _aliases(client)["champion"] == first
    assert _stored(client, first)["is_promoted"] is True
    assert lines == ["scoring models:/linker/1 on synthetic@v1, split test"]

    assert promote(client, "linker", second, say=lines.append).is_champion
    assert _aliases(client) == {"champion": second, "previous_champion": first, "challenger": bad}

    refused = promote(client, "linker", "challenger", say=lines.append)
    assert not refused.is_champion
    assert _aliases(client)["champion"] == second
    stored = _stored(client, bad)
    assert stored["is_promoted"] is False and stored["champion_before"] == second
    assert "worse than the champion" in str(stored["reasons"])


def test_dry_run_decides_but_moves_and_records_nothing(
    client: mlflow.MlflowClient, register_model: Register, trained: Path
) -> None:
    register_model(trained)
    promotion = promote(client, "linker", "1", is_dry_run=True, say=print)
    assert promotion.decision is not None and promotion.decision.is_promoted
    assert _aliases(client) == {"challenger": "1"}
    assert DECISION_TAG not in find_version(client, "linker", "1").tags


def test_the_champion_stays_champion(client: mlflow.MlflowClient, register_model: Register, trained: Path) -> None:
    register_model(trained)
    promote(client, "linker", "1", say=print)
    again = promote(client, "linker", "champion", say=print)
    assert again.is_champion and again.reasons == ("it is the champion already",)
    assert _aliases(client) == {"challenger": "1", "champion": "1"}


def test_a_random_model_is_not_promoted(client: mlflow.MlflowClient, register_model: Register, untrained: Path) -> None:
    register_model(untrained)
    promotion = promote(client, "linker", "1", say=print)
    assert not promotion.is_champion and "champion" not in _aliases(client)
    assert "not shown to beat random" in promotion.reasons[0]


def test_mistakes_are_named(
    client: mlflow.MlflowClient, register_model: Register, trained: Path, tmp_path: Path
) -> None:
    register_model(trained)
    with pytest.raises(NotFoundError, match="no version '9'"):
        promote(client, "linker", "9", say=print)
    with pytest.raises(NotFoundError, match="give its lake with --lake"):
        promote(client, "linker", "1", lake=Lake.at(str(tmp_path)), say=print)
    client.delete_model_version_tag("linker", "1", "lake")
    with pytest.raises(UsageError, match="give --lake"):
        promote(client, "linker", "1", say=print)
