"""What is released: a wheel and a source distribution that work in an environment without the repository."""

import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from forked import clean_environment
from repository import ROOT

PACKAGES = ("multilink", "networks", "schemas", "pipelines", "training", "newsroom", "orchestration")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2]))"


def build(source: Path, kind: str, target: Path) -> Path:
    """Build a distribution of a folder as a frontend does, with the backend that is installed here."""
    target.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", BUILD, kind, str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return target / done.stdout.splitlines()[-1]


def tracked(folder: str, target: Path) -> Path:
    """Copy a folder of the repository as it is published: without what git does not know, or is to ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(build(tracked(".", folder / "source"), "sdist", folder / "dist")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.fixture(scope="module")
def wheel(unpacked: Path) -> Path:
    return build(unpacked, "wheel", unpacked.parent / "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and the packages of this one without its own multilink."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")  # a path of a .pth reads no .pth there
    install(wheel, folder)
    return folder / "bin"


def install(wheel: Path, folder: Path) -> None:
    where = ["--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", *where, str(wheel)], check=True, timeout=300, env=apart())


def apart() -> dict[str, str]:
    """Return the environment without a path of Python's: what lies there would count as installed."""
    return {name: value for name, value in clean_environment().items() if name != "PYTHONPATH"}


def run(program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], cwd=folder, env=apart(), capture_output=True, text=True, check=False, timeout=500
    )


@pytest.mark.slow
def test_a_wheel_of_the_source_distribution_has_the_files_of_the_repository(unpacked: Path, wheel: Path) -> None:
    assert {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "constraints.txt"} <= {
        path.name for path in unpacked.iterdir()
    }
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    with zipfile.ZipFile(wheel) as made:
        files = {name for name in made.namelist() if not name.startswith("multilink_pipeline-0.1.0.dist-info/")}
        assert files == {name for name in tracked if (ROOT / name).is_file()}
        assert all(made.read(name) == (ROOT / name).read_bytes() for name in files)


@pytest.mark.slow
def test_an_installed_multilink_links_two_pictures_without_the_repository(installed: Path, tmp_path: Path) -> None:
    told = run(installed / "multilink", "--version", folder=tmp_path)
    assert told.stdout == f"multilink {metadata.version('multilink-pipeline')}\n", told.stderr
    where = f"import {', '.join(PACKAGES)}; print(networks.__file__, training.__file__)"
    found = run(installed / "python", "-c", where, folder=tmp_path).stdout.split()
    assert all(Path(path).is_relative_to(installed.parent) for path in found) and len(found) == 2
    for name in ("cat", "coffee"):
        shutil.copy(ROOT / "examples" / "photographs" / f"{name}.jpg", tmp_path)
    pictures = [{"path": "cat.jpg"}, {"path": "coffee.jpg"}]
    record = {"sentences": ["An espresso.", "A cat looks up."], "images": pictures}
    (tmp_path / "new.jsonl").write_text(json.dumps(record) + "\n")
    files = ["--input", "new.jsonl", "--output", "links.parquet", "--page", "linked", "--json"]
    linked = run(installed / "multilink", "link", "--model", "class-names", *files, folder=tmp_path)
    assert linked.returncode == 0, linked.stderr
    links = {each["text"]: each["source"] for each in json.loads(linked.stdout.splitlines()[-1])["examples"]}
    assert links == {"An espresso.": "coffee.jpg", "A cat looks up.": "cat.jpg"}
    assert (tmp_path / "linked" / "index.html").is_file()  # its template is package data


@pytest.mark.trial  # `test_recorded_web.py` has where it is looked for
def test_the_recorded_web_is_found_where_its_package_is_installed(installed: Path, tmp_path: Path) -> None:
    without = run(installed / "multilink", "demo", folder=tmp_path)
    assert without.returncode == 2
    assert "no recorded web is here" in without.stderr and "multilink-recorded-web" in without.stderr
    assert list(tmp_path.iterdir()) == []
    source = tracked("tests/replay", tmp_path / "source") / "tests" / "replay"
    install(build(source, "wheel", tmp_path / "dist"), installed.parent)
    program = (
        "import urllib.request\n"
        "from orchestration.demo.recorded_web import recording_at, serving\n"
        "with serving(recording_at()) as port:\n"
        "    print(urllib.request.urlopen(f'http://127.0.0.1:{port}/__requests').status, recording_at())\n"
    )
    found = run(installed / "python", "-c", program, folder=tmp_path)
    status, place = found.stdout.split(maxsplit=1)
    assert status == "200", found.stderr
    assert Path(place.strip()).is_relative_to(installed.parent)
