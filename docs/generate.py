"""What of the guide is made from the code: commands with their options, settings of recipes, who imports whom.

`llms.txt`, the list of pages for language models (https://llmstxt.org), is made from the map on the home page.

MkDocs calls `on_files` before it builds the site.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grimp
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

import pipelines.config
import training.recipes
from orchestration.cli import app
from orchestration.commands.settings import Setting, settings_of, summaries

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"reference/commands.md": "commands", "reference/settings.md": "settings"}
LAYERS = {  # package -> the contract of pyproject.toml that has its parts in their order
    "pipelines": "a stage of pipelines imports only stages before it",
    "training": "a step of training imports only steps before it",
    "orchestration": "a room of orchestration imports only rooms below it",
}
CELL, NAMES = 20, 190  # pixels


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and pictures."""
    for package, contract in LAYERS.items():
        path = f"explanation/imports-{package}.svg"
        files.append(File.generated(config, path, content=imports(package, stages_of(contract))))
    for path, name in PAGES.items():
        files.append(
            File.generated(config, path, content="\n".join({"commands": commands, "settings": settings}[name]()))
        )
    files.append(File.generated(config, "llms.txt", content=llms(config.site_description)))
    return files


def llms(description: str | None) -> str:
    """Return title, one line, and the pages of the map with their purpose."""
    map_ = re.findall(r"^(?:## .+|- .+)$", (ROOT / "docs/index.md").read_text(encoding="utf-8"), re.MULTILINE)
    lines = [f"\n{line}\n" if line.startswith("#") else line.replace(".md)", ".html)") for line in map_]
    return "\n".join(["# multilink\n", f"> {description}", *lines, ""])


def commands() -> Iterator[str]:
    """Yield the page of all commands."""
    yield "# Commands\n"
    yield "`multilink COMMAND --help` prints the same. Exit status 0: success. 1: a build failed, or the gate refused."
    yield "2: a wrong argument or input, with one line that explains it.\n"
    yield from _command(get_command(app), ["multilink"])


def _command(command: Any, path: list[str]) -> Iterator[str]:
    if hasattr(command, "list_commands"):
        for name in sorted(command.list_commands(None)):
            yield from _command(command.get_command(None, name), [*path, name])
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    yield f"## {' '.join(path[1:])}\n"
    yield f"    {' '.join([*path, *((each.metavar or each.name.upper()) for each in arguments), '[OPTIONS]'])}\n"
    yield (command.help or "").strip() + "\n"
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    if options:
        yield "| option | meaning | default |\n|---|---|---|"
        for each in options:
            names = ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
            yield f"| {names} | {_cell(each.help or '')} | {_default(each)} |"
        yield ""


def _default(option: Any) -> str:
    if option.required:
        return "required"
    value = option.default
    if value is None or callable(value) or not str(value) or str(value) == "Sentinel.UNSET":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def settings() -> Iterator[str]:
    """Yield the page of all settings."""
    yield "# Settings\n"
    yield "`--set KEY=VALUE` changes a setting; `multilink settings NAME` prints the settings of a recipe. Another"
    yield "tower, objective or source has other settings.\n"
    for title, command, makers in (
        ("Of a build", "multilink build", pipelines.config.RECIPES),
        ("Of training", "multilink train", training.recipes.RECIPES),
    ):
        yield f"## {title}\n"
        yield f"Settings of `{command}`. Each default is that of the recipe in brackets.\n"
        yield "| recipe | what it is |\n|---|---|"
        yield from (f"| `{name}` | {_cell(line)} |" for name, line in summaries(makers).items())
        yield "\n| key | default | meaning |\n|---|---|---|"
        known: dict[str, tuple[str, Setting]] = {}
        for name, make in makers.items():
            for each in settings_of(make()):
                known.setdefault(each.key, (name, each))
        for key, (name, each) in sorted(known.items()):
            choices = f" One of {', '.join(f'`{choice}`' for choice in each.choices)}." if each.choices else ""
            value = f"`{each.value}`" if each.value not in ("", [], None) else ""
            yield f"| `{key}` | {_cell(value)} ({name}) | {_cell(each.meaning + choices)} |"
        yield ""


def stages_of(contract: str) -> list[str]:
    """Return the modules of a contract of layers, the first stage first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (found,) = (each for each in settings["tool"]["importlinter"]["contracts"] if each["name"] == contract)
    (package,) = found.get("containers", [""])
    names = [name.strip() for layer in reversed(found["layers"]) for name in layer.split("|")]
    return [f"{package}.{name}" if package else name for name in names]


def imports(package: str, stages: list[str]) -> str:
    """Return an SVG of who imports whom: a row a stage, filled where it imports the stage of the column."""
    graph = grimp.build_graph(package)
    inside = {stage: {stage, *graph.find_descendants(stage)} for stage in stages}
    size = CELL * len(stages)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {NAMES + size + 8} {size + CELL + 8}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>Imports between the stages of {package}</title>',
    ]
    for row, stage in enumerate(stages):
        y = CELL * (row + 1)
        name = f"{row + 1}  {stage.removeprefix(package + '.')}"
        parts.append(f'<text x="{NAMES - 8}" y="{y + 14}" text-anchor="end" fill="#777">{name}</text>')
        parts.append(f'<text x="{NAMES + CELL * row + 10}" y="14" text-anchor="middle" fill="#777">{row + 1}</text>')
        imported = {each for module in inside[stage] for each in graph.find_modules_directly_imported_by(module)}
        for column, other in enumerate(stages):
            count = len(imported & inside[other]) if other != stage else 0
            fill = "#777" if other == stage else "#1d5fa8" if count else "none"
            shade = min(1.0, 0.35 + 0.15 * count) if count else 0.5
            said = f"<title>{stage} imports {count} modules of {other}</title>" if count else ""
            place = f'x="{NAMES + CELL * column}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="3"'
            parts.append(
                f'<rect {place} fill="{fill}" '
                f'fill-opacity="{shade:.2f}" stroke="#999" stroke-opacity="0.25">{said}</rect>'
            )
    return "".join([*parts, "</svg>"])


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
