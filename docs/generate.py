"""Pages of the guide that are made from the code: every command with its options, and every setting of every recipe.

MkDocs calls `on_files` before it builds the site.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

import pipelines.config
import training.recipes
from orchestration.cli import app
from orchestration.settings import Setting, settings_of, summaries

PAGES = {"reference/commands.md": "commands", "reference/settings.md": "settings"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, name in PAGES.items():
        files.append(
            File.generated(config, path, content="\n".join({"commands": commands, "settings": settings}[name]()))
        )
    return files


def commands() -> Iterator[str]:
    """Yield the page of all commands."""
    yield "# Commands\n"
    yield "Made from the command line itself. `multilink COMMAND --help` prints the same. Exit status 0: done. 1: a"
    yield "build failed or a gate said no. 2: a mistake of the caller, told in one line.\n"
    yield from _command(get_command(app), ["multilink"])


def _command(command: Any, path: list[str]) -> Iterator[str]:
    if hasattr(command, "commands"):
        for name, each in sorted(command.commands.items()):
            yield from _command(each, [*path, name])
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
    yield "Made from the dataclasses that hold them. `--set KEY=VALUE` changes one; `multilink settings NAME` prints"
    yield "those of one recipe. A tower, an objective or a source of another name has other settings.\n"
    for title, command, makers in (
        ("Of a build", "multilink build", pipelines.config.RECIPES),
        ("Of training", "multilink train", training.recipes.RECIPES),
    ):
        yield f"## {title}\n"
        yield f"`{command}` takes them. The default is that of the recipe named beside it.\n"
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
            yield f"| `{key}` | {_cell(value)} ({name}) | {_cell(each.meaning)}{_cell(choices)} |"
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
