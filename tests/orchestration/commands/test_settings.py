"""Settings as a newcomer finds them: every one is listed with its value, its choices and what it means."""

import json

import pytest
from configurations import dotted_keys

from orchestration.cli import run
from orchestration.commands.settings import Setting, describe, settings_of
from pipelines.config import RECIPES as BUILDS
from schemas.overrides import override
from training.recipes import RECIPES as TRAININGS


@pytest.mark.parametrize("name", [*BUILDS, *TRAININGS])
def test_every_setting_of_every_recipe_says_what_it_means(name: str) -> None:
    config = (BUILDS.get(name) or TRAININGS[name])()
    found = list(settings_of(config))
    assert [setting.key for setting in found] == list(dotted_keys(config))
    assert [setting.key for setting in found if not setting.meaning] == []


@pytest.mark.parametrize("name", [*BUILDS, *TRAININGS])
def test_what_is_listed_can_be_set(name: str) -> None:
    config = (BUILDS.get(name) or TRAININGS[name])()
    lines = [line for line in describe(list(settings_of(config))) if not line.startswith(" ")]
    typed = [line.partition("   (")[0].replace(" = ", "=").replace(" =", "=") for line in lines]
    assert override(config, typed) == config


def test_a_setting_is_shown_with_its_choices_and_meaning() -> None:
    setting = Setting(key="dedupe.policy", value="keep-all", choices=("keep-first", "keep-all"), meaning="word " * 30)
    lines = list(describe([setting]))
    assert lines[0] == "dedupe.policy = keep-all   (keep-first | keep-all)"
    assert len(lines) == 3
    assert all(line.startswith("    word") and len(line) <= 100 for line in lines[1:])


def test_the_command_lists_recipes_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in (*BUILDS, *TRAININGS))
    assert run(["settings", "li-2022", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["settings"]
    assert {row["key"]: row["value"] for row in rows}["objective.cross-document.similarity.name"] == "tk"
    assert run(["settings", "nothing"]) == 2
    assert "unknown recipe 'nothing'; recipes: alikhani-2022, " in capsys.readouterr().err
