from typing import Annotated

import typer

from orchestration.commands import options
from schemas.errors import GateError
from schemas.manifest import verify
from schemas.parts import measured_ranges, vector_ranges


def command(
    version: options.Version,
    is_deep: Annotated[
        bool,
        typer.Option("--deep", help="Measure vectors and compare pictures anew, as against what the manifest notes."),
    ] = False,
) -> options.Summaries:
    """Read every byte of a version and compare it with the manifest; exit status 1 where anything differs."""
    _, manifest, folder = version()
    problems = list(verify(manifest, folder))
    if is_deep and not problems:
        from orchestration.rules.verdicts import compared_anew

        noted = vector_ranges(manifest, folder)
        for name, found in measured_ranges(manifest, folder).items():
            if found != noted[name]:
                problems.append(f"{name}: its vectors are {found}, the manifest notes {noted[name]}")
        pictures = compared_anew(manifest, folder) if "dedupe" in manifest.config else None
        if pictures is not None and not pictures.passed:
            problems.append(f"near-duplicates: {pictures.text}")
    lines = problems or [f"{manifest.reference}: intact, {len(manifest.files)} files"]
    yield lines, {"dataset": manifest.reference, "intact": not problems, "problems": problems}
    if problems:
        raise GateError(f"{manifest.reference}: {len(problems)} of its files differ from the manifest")
