"""Whether a published record of a Reddit post says that the post is gone.

Records of dumps (Pushshift, Arctic Shift) and of the API say so in the same fields, of which any may be absent. A post
is gone when its author deleted it, or a moderator, a filter, Reddit or a claim of copyright removed it. A deleted
account alone (`author`) takes no post down.
"""

import re
from collections.abc import Mapping
from typing import Any

_PLACEHOLDER = re.compile(
    r"\s*\[\s*(deleted|removed)(\s+by\s[^\]]*)?\s*\]\s*", re.IGNORECASE
)  # `[ Removed by moderator ]`
_TEXTS = ("title", "selftext")
# Who or what removed it: null, false or empty in a post that stands.
_REMOVERS = ("removed_by_category", "removed_by", "banned_by", "removal_reason", "banned_at_utc", "removed", "spam")
_SEEN_LATER = ("was_deleted_later", "removal_type")  # of `_meta`, Arctic Shift's own
REMOVAL_FIELDS = (*_TEXTS, *_REMOVERS, "is_robot_indexable", "crosspost_parent_list")  # what is asked of the API
_NOTHING = frozenset({"", "null", "none", "false", "0"})


def removal_of(record: Mapping[str, Any]) -> str:
    """Return the field that says that a post is gone, with its value; empty where none does."""
    meta, parents = record.get("_meta"), record.get("crosspost_parent_list")
    found = [
        *(name for name in _TEXTS if isinstance(record.get(name), str) and _PLACEHOLDER.fullmatch(record[name])),
        *(name for name in _REMOVERS if _is_said(record.get(name))),
        *(["is_robot_indexable"] if record.get("is_robot_indexable") is False else []),  # Reddit's own mark of it
    ]
    if found:
        return f"{found[0]}: {record[found[0]]}"
    later = meta if isinstance(meta, Mapping) else {}
    for name in _SEEN_LATER:
        if _is_said(later.get(name)):
            return f"_meta.{name}: {later[name]}"
    for parent in parents if isinstance(parents, list) else ():
        if isinstance(parent, Mapping) and (removal := removal_of({**parent, "crosspost_parent_list": None})):
            return f"the post that it repeats has {removal}"
    return ""


def _is_said(value: object) -> bool:
    return bool(value) and str(value).strip().casefold() not in _NOTHING
