"""Configurations as frozen dataclasses: dotted overrides, plain dictionaries and back, with clear errors.

A configuration is a frozen dataclass whose fields are scalars, enumerations (`Literal` or `StrEnum`), tuples of
scalars, or further such dataclasses. This module turns one into JSON-ready values, reads it back, and applies
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
from functools import cache, reduce
from operator import getitem
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from schemas.errors import ConfigError, IntegrityError
from schemas.versions import plain

C = TypeVar("C")
_hints: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)
Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


def resolve(config: object) -> dict[str, Json]:
    """Return every setting of a configuration as JSON-ready values, in field order."""
    return cast(dict[str, Json], plain(config))


def restore(kind: type[C], values: Mapping[str, Any], *, prefix: str = "") -> C:
    """Return the configuration that `resolve` gave `values` for.

    Args:
        kind: its class.
        values: by the names of its fields; what is not there has its default.
        prefix: of its keys in messages, where it is part of another (`images.`).

    Raises:
        ConfigError: a key is unknown or a value has the wrong type.
    """
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            raise ConfigError(_unknown_key(prefix + name, [prefix + known for known in names]))
    return kind(**{name: _coerce(values[name], hints[name], key=prefix + name) for name in names if name in values})


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
    bare text (`ap`). A comma separates the items of a list written bare (`dc,tk`).

    Raises:
        ConfigError: an assignment without `=`, an unknown key (the nearest valid key is named), or a value of
            the wrong type or out of range.
    """
    keys = dotted_keys(config)
    values: dict[str, Any] = resolve(config)
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        key = key.strip()
        if not separator:
            raise ConfigError(f"--set {assignment}: expected key=value")
        if key not in keys:
            raise ConfigError(_unknown_key(key, keys))
        *parents, leaf = key.split(".")
        inner = reduce(getitem, parents, values)
        inner[leaf] = _parse(text, keys[key], key=key)
    return restore(type(config), values)


def dotted_keys(config: object) -> dict[str, Any]:
    """Return each settable dotted key of a configuration with its declared type."""
    keys: dict[str, Any] = {}
    hints = _hints(type(config))
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            keys.update({f"{field.name}.{key}": hint for key, hint in dotted_keys(value).items()})
        else:
            keys[field.name] = hints[field.name]
    return keys


def require(condition: bool, *, field: str, value: object, rule: str) -> None:
    """Raise a `ConfigError` naming the field, its value and the rule, unless the condition holds."""
    if not condition:
        raise ConfigError(f"{field} = {value!r}: {rule}")


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
    raise ConfigError(f"{key} = {value!r}: expected {_describe(hint)}, found {_describe(type(value))}")


def _coerce_union(value: Any, members: tuple[Any, ...], *, key: str) -> Any:
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
