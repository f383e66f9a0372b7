from orchestration.commands import options
from schemas.errors import GateError
from schemas.manifest import verify


def command(version: options.Version) -> options.Summaries:
    """Read every byte of a version and compare it with the manifest; exit status 1 where anything differs."""
    _, manifest, folder = version()
    problems = list(verify(manifest, folder))
    lines = problems or [f"{manifest.reference}: intact, {len(manifest.files)} files"]
    yield lines, {"dataset": manifest.reference, "intact": not problems, "problems": problems}
    if problems:
        raise GateError(f"{manifest.reference}: {len(problems)} of its files differ from the manifest")
