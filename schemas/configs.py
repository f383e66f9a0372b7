"""Configurations as frozen dataclasses: dotted overrides, plain dictionaries and back, with clear errors.

A configuration is a frozen dataclass whose fields are scalars, enumerations (`Literal` or `StrEnum`), tuples of
scalars, or further such dataclasses. A field can be one of several dataclasses, told apart by the default of their
`name`; setting the name chooses one. One of them may stand for those of other packages: its `plugins` names the group
of their entry points (`schemas.plugins`). A dataclass can also have a property `unused`: the names of fields that its
other fields make void. This module turns a configuration into JSON-ready values, reads it back, and applies
`key.subkey=value` overrides. What a configuration *means* is validated by its own `__post_init__`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import enum
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial, reduce
from operator import getitem
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from schemas.errors import ConfigError, IntegrityError
from schemas.plugins import load_plugin, plugins, told
from schemas.versions import plain

C = TypeVar("C")
_hints: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)
NAME = "name"
Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


def resolve(config: object) -> dict[str, Json]:
    """Return every setting of a configuration as JSON-ready values, in field order."""
    return cast(dict[str, Json], plain(config))


def restore(kind: type[C], values: Mapping[str, Any], *, prefix: str = "", like: object = None) -> C:
    """Return the configuration that `resolve` gave `values` for.

    Args:
        kind: its class.
        values: by the names of its fields; what is not there has its default.
        prefix: of its keys in messages, where it is part of another (`images.`).
        like: a configuration whose parts without a name keep their classes; None: those of the declared types.

    Raises:
        ConfigError: a key is unknown or a value has the wrong type.
    """
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    kept = {name: _kept(hints[name], getattr(like, name, None)) for name in names}
    known = {name: _coerce(values[name], kept[name], key=prefix + name) for name in names if name in values}
    config = kind(**known)
    used = [name for name in names if name not in getattr(config, "unused", ())]
    for name in values:
        if name not in used:
            raise ConfigError(_unknown_key(prefix + name, [prefix + other for other in used]))
    return config


def restore_json(kind: type[C], text: str, *, what: str) -> C:
    """Return the record of a JSON file's text.

    Raises:
        IntegrityError: it is none; the message says that `what` was expected.
    """
    try:
        return restore(kind, json.loads(text))
    except (ValueError, TypeError, AttributeError, ConfigError) as problem:
        raise IntegrityError(f"expected {what}, found {problem}") from problem


def override(config: C, assignments: Iterable[str]) -> C:
    """Return `config` with dotted `key=value` assignments applied in order, and then checked all at once.

    A value is read as JSON where that gives the field's type (`12`, `true`, `null`, `["a", "b"]`), else as the
    bare text (`ap`). A comma separates the items of a list written bare (`dc,tk`). Names that choose a part come first,
    wherever they stand: what was set of the old part stays where the new one has it, all else has its default.

    Raises:
        ConfigError: an assignment without `=`, an unknown key (the nearest valid key is named), or a value of
            the wrong type or out of range.
    """
    pairs = [_assignment(text) for text in assignments]
    keys, values = dotted_keys(config), resolve(config)
    for key, text in sorted(pairs, key=lambda pair: not pair[0].endswith(f".{NAME}")):
        if key not in keys:
            raise ConfigError(_unknown_key(key, keys))
        *parents, leaf = key.split(".")
        inner: dict[str, Any] = reduce(getitem, parents, cast(Any, values))
        value = _parse(text, keys[key], key=key)
        if leaf == NAME and (part := _chosen_part(config, parents)) is not None:
            before, after = (_coerce({NAME: name}, part, key=key) for name in (inner[NAME], value))
            was_set = {name: old for name, old in inner.items() if old != resolve(before)[name]}
            chosen = resolve(after)
            inner.clear()
            inner.update(chosen | {name: old for name, old in was_set.items() if name in chosen})
            prefix = key.removesuffix(NAME)
            keys = {name: hint for name, hint in keys.items() if not name.startswith(prefix)}
            keys |= {prefix + name: hint for name, hint in dotted_keys(after, part).items()}
        inner[leaf] = value
    return restore(type(config), values, like=config)


def dotted_keys(config: object, choice: Any = None) -> dict[str, Any]:
    """Return each settable dotted key of a configuration with its declared type.

    Args:
        config: the configuration.
        choice: type of the field that holds it; of several dataclasses, the name can be any of theirs.
    """
    keys: dict[str, Any] = {}
    hints, names = _hints(type(config)), tuple(_named(get_args(choice)))
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if field.name in getattr(config, "unused", ()):
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            inner = dotted_keys(value, hints[field.name])
            keys.update({f"{field.name}.{key}": hint for key, hint in inner.items()})
        else:
            keys[field.name] = Literal[names] if names and field.name == NAME else hints[field.name]
    return keys


def flatten(values: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return nested settings, as `resolve` gives them, under dotted keys, in order."""
    flat: dict[str, Json] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def require(condition: bool, *, field: str, value: object, rule: str) -> None:
    """Raise a `ConfigError` naming the field, its value and the rule, unless the condition holds."""
    if not condition:
        raise ConfigError(f"{field} = {value!r}: {rule}")


def pick(known: Mapping[str, C], name: str, *, what: str) -> C:
    """Return what has a name.

    Raises:
        ConfigError: nothing has; the message gives the nearest name, and all of them.
    """
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise ConfigError(f"unknown {what} '{name}'; {hint}{what}s: {', '.join(sorted(known))}")


def _assignment(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"--set {text}: expected key=value")
    return key.strip(), value


def _chosen_part(config: object, parents: list[str]) -> Any:
    """Return the type of a part whose name says which settings it has, None of any other part."""
    hint: Any = None
    for name in parents:
        hint, config = _hints(type(config))[name], getattr(config, name)
    return hint if _named(get_args(hint)) or hasattr(config, "unused") else None


def _kept(hint: Any, part: object) -> Any:
    """Return the class that a part has, where nothing in its settings tells it from the others of its type."""
    is_one_of_several = get_origin(hint) in (Union, types.UnionType) and not _named(get_args(hint))
    return type(part) if is_one_of_several and dataclasses.is_dataclass(part) else hint


def _named(members: Iterable[Any]) -> Mapping[str, Callable[[], Any]]:
    """Return the dataclasses of a union by their names, those of other packages last; none where they have no names."""
    kinds = [member for member in members if dataclasses.is_dataclass(member)]
    found = {str(_default_name(kind)): partial(_itself, kind) for kind in kinds if _default_name(kind)}
    groups = [group for kind in kinds if (group := getattr(kind, "plugins", None))]
    return {name: partial(_of_plugin, group, name) for group in groups for name in plugins(group)} | found


def _itself(kind: Any) -> Any:
    return kind


def _of_plugin(group: str, name: str) -> Any:
    """Return the dataclass of another package's settings."""
    kind = load_plugin(group, name)
    if not (dataclasses.is_dataclass(kind) and _default_name(kind) == name):
        raise ConfigError(
            f"{told(group, name)}: expected a dataclass whose name is '{name}' by default, found {kind!r}"
        )
    return kind


def _default_name(kind: Any) -> Any:
    defaults = [field.default for field in dataclasses.fields(kind) if field.name == NAME]
    return next((default for default in defaults if default is not dataclasses.MISSING), None)


def _unknown_key(key: str, keys: Iterable[str]) -> str:
    known = list(keys)
    last = {name.rsplit(".", 1)[-1]: name for name in known}
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    near = near or [last[leaf] for leaf in difflib.get_close_matches(key.rsplit(".", 1)[-1], last, n=1, cutoff=0.5)]
    hint = f"did you mean '{near[0]}'?" if near else f"valid keys: {', '.join(sorted(known))}"
    return f"unknown key '{key}'; {hint}"


def _parse(text: str, hint: Any, *, key: str) -> Any:
    """Read one override's text as the declared type."""
    text = text.strip()
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    try:
        return _coerce(value, hint, key=key)
    except ConfigError:
        if get_origin(hint) is tuple and not isinstance(value, list):
            item = get_args(hint)[0]
            return tuple(_parse(part, item, key=key) for part in text.split(",")) if text else ()
        with contextlib.suppress(ConfigError):
            return _coerce(text, hint, key=key)
        raise


def _coerce(value: Any, hint: Any, *, key: str) -> Any:
    """Return `value` as the type `hint`, or raise naming the key, what was expected and what was found."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _coerce_union(value, get_args(hint), key=key)
    if origin is Literal:
        if value in get_args(hint):
            return value
        raise ConfigError(f"{key} = {value!r}: expected one of {', '.join(map(str, get_args(hint)))}")
    if hint is Any:
        return value
    if origin is Mapping and isinstance(value, Mapping):
        return {name: _coerce(item, get_args(hint)[1], key=f"{key}.{name}") for name, item in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_coerce(item, get_args(hint)[0], key=key) for item in value)
    if isinstance(hint, type):
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            return restore(hint, value, prefix=f"{key}.")
        if issubclass(hint, enum.Enum) and value in [member.value for member in hint]:
            return hint(value)
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, hint) and not (hint in (int, float) and isinstance(value, bool)):
            return value
    is_choice = isinstance(hint, type) and issubclass(hint, enum.Enum)
    found = "" if is_choice else f", found {_describe(type(value))}"
    raise ConfigError(f"{key} = {value!r}: expected {_describe(hint)}{found}")


def _coerce_union(value: Any, members: tuple[Any, ...], *, key: str) -> Any:
    if (named := _named(members)) and isinstance(value, Mapping):
        name = _coerce(value.get(NAME), Literal[tuple(named)], key=f"{key}.{NAME}")
        return restore(named[name](), value, prefix=f"{key}.")
    of_its_names = [member for member in members if isinstance(value, dict) and value and _names(member) == {*value}]
    *others, last = of_its_names or [member for member in members if value is None or member is not type(None)]
    for member in others:
        with contextlib.suppress(ConfigError):
            return _coerce(value, member, key=key)
    return _coerce(value, last, key=key)


def _names(hint: Any) -> set[str]:
    """Return the names of a dataclass's settings; none of anything else."""
    return {field.name for field in dataclasses.fields(hint)} if dataclasses.is_dataclass(hint) else set()


def _describe(hint: Any) -> str:
    if hint is type(None):
        return "null"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in hint)
    if get_origin(hint) is tuple:
        return f"a list of {_describe(get_args(hint)[0])}"
    return {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )
