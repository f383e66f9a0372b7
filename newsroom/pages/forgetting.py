"""Taking documents and images out of the database of the pages: a mark is left where one of them was.

The log only grows, but for this: in a row of a decision, a label, a comparison or a ranking, the id of a document and
the hash of an image become a random mark, the same in all rows, and titles and notes become `forgotten`. What was
decided, by whom and when stays. Articles that are such a document, and uploads that are such an image, are removed.
"""

import json
import secrets
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from newsroom.decisions.log import COMPARED, DECISIONS, RANKINGS, DecisionLog, changing_rows
from newsroom.pages.store import ARTICLES, KEY_DIGITS, UPLOADS, Store
from schemas.errors import BuildError

FORGOTTEN = "forgotten"
_ZEROS = "0" * 16  # the mark of an image begins with them


def forget_on_pages(address: str, documents: Collection[str], images: Collection[str], *, is_dry_run: bool) -> int:
    """Replace rows that name a document or an image by marks, and return how many rows name one.

    Args:
        address: of the database, which is there.
        documents: ids.
        images: content hashes.
        is_dry_run: whether the rows are only counted.

    Raises:
        BuildError: the database refused; nothing was changed.
    """
    marks = {each: f"{FORGOTTEN}-{secrets.token_hex(8)}" for each in documents}
    marks |= {each: _ZEROS + secrets.token_hex(24) for each in images}
    store = Store(address)
    DecisionLog(store.engine)  # makes tables that are not there
    engine = store.engine
    try:
        with changing_rows(engine) as connection:
            count = sum(_forget(connection, marks, is_dry_run=is_dry_run))
        if count and not is_dry_run and engine.dialect.name == "sqlite":
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sql.text("VACUUM"))
                connection.execute(sql.text("PRAGMA wal_checkpoint(TRUNCATE)"))
    except SQLAlchemyError as problem:
        raise BuildError(f"--store: {str(problem).splitlines()[0]}") from problem
    finally:
        store.close()
    return count


def _forget(connection: sql.Connection, marks: Mapping[str, str], *, is_dry_run: bool) -> list[int]:
    """Change the rows of each table, unless it is a dry run, and return how many name something, by table."""
    counts, gone = [], {"title": FORGOTTEN, "note": FORGOTTEN}
    for table, key, names in (
        (DECISIONS, "number", ("document", "image")),
        (COMPARED, "number", ("image",)),
        (RANKINGS, "digest", ()),
        (ARTICLES, "key", ()),
        (UPLOADS, "key", ()),
    ):
        columns = [table.c[key], *(column for column in table.columns if column.name not in (key, "bytes"))]
        found = 0
        for row in connection.execute(sql.select(*columns)).mappings().all():
            changed: dict[str, Any] | None = None
            if names and any(row[name] in marks for name in names):
                changed = {name: marks.get(row[name], row[name]) for name in names}
                changed |= {name: value for name, value in gone.items() if row.get(name)}
            elif table is RANKINGS and any(each["image"] in marks for each in row["ranking"]["pictures"]):
                pictures = [_unnamed(each, marks) for each in row["ranking"]["pictures"]]
                changed = {"ranking": row["ranking"] | {"pictures": pictures}}
            elif (
                table is ARTICLES
                and (
                    row["origin"].partition(" ")[2] in marks
                    or not marks.keys().isdisjoint(json.loads(row["images"] or "[]"))
                )
            ) or (table is UPLOADS and any(row["key"] == each[:KEY_DIGITS] for each in marks)):
                changed = {}
            if changed is None:
                continue
            found += 1
            if not is_dry_run:
                change = sql.update(table).values(changed) if changed else sql.delete(table)
                connection.execute(change.where(table.c[key] == row[key]))
        counts.append(found)
    return counts


def _unnamed(picture: Mapping[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
    """Return a picture of a ranking, with a mark and without its title where it is to be forgotten."""
    image = picture["image"]
    return dict(picture) | ({"image": marks[image], "title": FORGOTTEN} if image in marks else {})
