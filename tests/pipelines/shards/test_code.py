"""The code that names a version: the modules that its build reaches, and no other."""

import ast
import json
import shutil
import subprocess
import sys
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from schemas.versions import PACKAGES, _imported, _modules, code_digest, code_reached

ROOT = Path(__file__).parents[3]
MODULES = {name: path for package in PACKAGES for name, path in _modules(package).items()}
# Modules of a build that make no byte of a version, and why.
BESIDE = {
    "pipelines.card": "a view of the manifest, beside the version",
    "pipelines.launch": "how a pipeline runs: every runner gives the same bytes",
    "pipelines.runner": "the same",
    "pipelines.run": "begins and commits; what it reads for a build is read by modules that count",
    "pipelines.config": "recipes, whose settings count themselves",
    "pipelines.turns": "who may build now",
    "schemas.leases": "the same",
    "schemas.overrides": "reads settings, which count themselves",
    "pipelines.sources": "recipes of other data sets, and what they read",
    "pipelines.sources.corpora.compose": "the same",
}
# Of diy, of documents with NASNet, of documents with a network of the user's own.
NAMES = """
from pipelines.config import recipe
from pipelines.features.catalogue import module_of
from schemas.versions import code_reached, files_digest

def code(dataset, *extractors):
    source = type(recipe(dataset).source).__module__
    return files_digest(code_reached("pipelines.build", source, *map(module_of, extractors)))

def codes():
    return code("diy"), code("documents", "nasnet-mobile"), code("documents", "own")
"""
# Of copies of pictures, of values of DenseNet, of a network of the user's own.
KEYS = """
from pipelines.features.extraction import _code_of
from pipelines.images.inspect import copy_code
from schemas.versions import digest_within

def codes():
    digest_within.cache_clear()
    return copy_code(), _code_of("densenet169"), _code_of("own")
"""
EDITED = """
import json, sys
from pathlib import Path

before, changed = codes(), {}
for name in sys.argv[1:]:
    path = Path(name)
    text = path.read_text()
    path.write_text(text + "\\n")
    changed[name] = [old != new for old, new in zip(before, codes())]
    path.write_text(text)
print(json.dumps(changed))
"""
BUILD = """
import json, sys
from pipelines.config import recipe
from pipelines.run import build_dataset, features_of
from schemas.lake import Lake
from schemas.overrides import override

if __name__ == "__main__":
    settings = [f"source.documents={sys.argv[1]}", "features.images=efficientnet-lite0", "features.sentences="]
    config, lake = override(recipe("documents"), settings), Lake.at(sys.argv[2])
    build_dataset(config, lake=lake, say=lambda line: None)
    features = features_of(config, lake=lake, workers=1)
    print(json.dumps([sorted(sys.modules), type(config.source).__module__, features.modules]))
"""


def script(code: str, *arguments: str, root: Path = ROOT) -> Any:
    """Return what a script prints as JSON, run with the code of a folder."""
    command = [sys.executable, "-c", code, *arguments]
    run = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, check=True, text=True)
    return json.loads(run.stdout)


EVERY, NONE = [True] * 3, [False] * 3
FIRST, SECOND, THIRD = [True, False, False], [False, True, False], [False, False, True]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (
            NAMES,
            {
                "pipelines/build.py": EVERY,
                "pipelines/web/client.py": EVERY,
                "pipelines/partitions/columns.py": EVERY,
                "schemas/documents.py": EVERY,
                "pipelines/sources/diy/albums.py": FIRST,
                "pipelines/sources/datasets/documents.py": [False, True, True],
                "pipelines/features/extractors/nasnet_mobile.py": SECOND,
                "networks/nasnet_mobile.py": SECOND,
                "pipelines/features/onnx.py": THIRD,
                "pipelines/features/extractors/densenet169.py": NONE,
                "pipelines/card/card.py": NONE,
                "pipelines/card/README.md.j2": NONE,
                "pipelines/forgetting/forget.py": NONE,
                "pipelines/launch.py": NONE,
            },
        ),
        (
            KEYS,
            {
                "pipelines/images/inspect.py": FIRST,
                "pipelines/images/metadata.py": FIRST,
                "schemas/metadata.py": FIRST,
                "schemas/codecs.py": EVERY,
                "pipelines/features/pixels.py": [False, True, True],
                "pipelines/features/values.py": [False, True, True],
                "pipelines/features/networks.py": SECOND,
                "pipelines/features/extractors/densenet169.py": SECOND,
                "pipelines/features/onnx.py": THIRD,
                "pipelines/features/catalogue.py": NONE,
                "pipelines/features/extractors/resnet50.py": NONE,
                "pipelines/images/obtain.py": NONE,
                "pipelines/settings.py": NONE,
            },
        ),
    ],
    ids=["names of data sets", "what a lake keeps"],
)
def test_an_edit_renames_what_its_code_makes(codes: str, expected: dict[str, list[bool]], tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    assert script(codes + EDITED, *expected, root=tmp_path) == expected


def test_what_a_build_imports_is_reached_or_makes_no_byte(ten_documents: Path, tmp_path: Path) -> None:
    imported, source, extractors = script(BUILD, str(ten_documents), str(tmp_path / "lake"))
    reached = code_reached("pipelines.build", source, *extractors)
    missed = {name for name in MODULES.keys() & {*imported} if name not in reached}
    assert {n for n in missed if not any(f"{n}.".startswith(f"{each}.") for each in BESIDE)} == set()
    assert "pipelines.shards.writing" in reached and not any(name.startswith("pipelines.card") for name in reached)


@pytest.mark.parametrize("package", [*PACKAGES, "training", "orchestration"])
def test_imports_are_those_of_the_syntax_tree(package: str) -> None:
    for name, path in _modules(package).items():
        found, at = set[str](), name if path.stem == "__init__" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                origin = resolve_name("." * node.level + (node.module or ""), at)
                found |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        assert found & MODULES.keys() == {*_imported(name, path)} & MODULES.keys(), name


def test_a_plug_in_counts_with_what_it_imports_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "made_up_package"
    package.mkdir()
    files = {
        "__init__.py": "",
        "source.py": "def read():\n    from . import rows as r, \\\n        other\n",
        "rows.py": "import made_up_package.deep, json\nfrom schemas.lake import (\n    Lake,  # (why)\n)\n",
        "deep.py": "",
        "other.py": "",
        "unused.py": "",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    reached = code_reached("made_up_package.source")
    own = {f"made_up_package{name}" for name in ("", ".source", ".rows", ".deep")}
    assert {name for name in reached if name.startswith("made")} - {"made_up_package.other"} == own
    assert "schemas.lake" in reached and len(code_digest("made_up_package")) == 64
    monkeypatch.setitem(sys.modules, "made_in_memory", ModuleType("made_in_memory"))
    assert not code_reached("made_in_memory")
    with pytest.raises(ModuleNotFoundError):
        code_digest("no_such_package")
