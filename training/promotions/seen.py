"""How far this machine has seen each record of promotions: an earlier one is refused.

The end of a chain can be cut off in the lake, and its length in the registry be set back, by who can write both. A
machine that has read more notices: it keeps the number and the digest of the last statement that it has verified, in
`multilink/promotions` of the user's folder of state. A machine that reads a record for the first time does not.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from schemas.errors import IntegrityError
from schemas.lake import Folder
from schemas.versions import fingerprint
from training.promotions.chain import Statement


def check_seen(registry: str, name: str, created: str, statements: Sequence[Statement]) -> None:
    """Refuse a record that lacks what this machine has seen of it; else remember its end.

    Args:
        registry: address of the registry.
        name: registered model.
        created: when that was made.
        statements: of its record, verified, the first one first.

    Raises:
        IntegrityError: the record was longer, or another, when this machine read it before.
    """
    folder, file = _folder(), f"{fingerprint([registry, name, created])}.json"
    number, digest = 0, ""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        number, digest = json.loads((folder / file).read_text(encoding="utf-8"))
    if number and [each.digest for each in statements[number - 1 : number]] != [digest]:
        raise IntegrityError(
            f"the record of promotions of '{name}' had statement {number}, {digest[:12]}, when this machine read it "
            f"last, and has {len(statements)} now, that one not among them: restore it from a backup; if it was given "
            f"up on purpose, remove {folder / file}"
        )
    if len(statements) > number:
        with suppress(OSError):  # a machine without a folder of its user remembers nothing
            Folder(str(folder)).write(file, json.dumps([len(statements), statements[-1].digest]).encode())


def _folder() -> Path:
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "multilink" / "promotions"
