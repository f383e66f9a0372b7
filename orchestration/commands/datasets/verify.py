from orchestration.commands import options
from schemas.errors import GateError
from schemas.lake import Lake
from schemas.manifest import read_manifest, verify


def command(reference: options.Reference, lake: options.LakePath) -> options.Summaries:
    """Read every byte of a version and compare it with the manifest; exit status 1 where anything differs."""
    manifest, folder = read_manifest(Lake.at(lake), reference)
    problems = list(verify(manifest, folder))
    name = f"{manifest.dataset}@{manifest.version}"
    lines = problems or [f"{name}: intact, {len(manifest.files)} files"]
    yield lines, {"dataset": name, "intact": not problems, "problems": problems}
    if problems:
        raise GateError(f"{name}: {len(problems)} of its files differ from the manifest")
