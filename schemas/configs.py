"""Configurations as frozen dataclasses: dotted overrides, plain dictionaries and back, with clear errors.

A configuration is a frozen dataclass whose fields are scalars, enumerations (`Literal` or `StrEnum`), tuples of
scalars, or further such dataclasses. Three kinds of field are chosen by a name:

    schedule: Plateau | Steps                          one of these, distinguished by the default of `name`
    text: Annotated[TowerSettings, TEXT_TOWERS]        one part of a group (`schemas.plugins`)
    objective: tuple[Annotated[Term, OBJECTIVES], ...] several parts, a sum; named as `cross-document+coherence`

    --set text.name=gru (or text=gru)         chooses a part; what was set of the old one stays where the new one has it
    --set objective.margin=0.3                a setting of every term that has it
    --set objective.cross-document.margin=0.3 of one of several terms

A bound stands at its field (`PositiveInt`, `Annotated[float, Bounds(ge=0, lt=1)]`) and holds for every configuration
that is a `Settings`, however it is made. What settings mean together is checked by their own `__post_init__`.
"""

import contextlib
import dataclasses
import difflib
import enum
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, cast, get_args, get_origin

from schemas.errors import ConfigError, IntegrityError
from schemas.plugins import NAME, Group, canonical_names, default_name, find_part, part_names
from schemas.versions import plain

C = TypeVar("C")
_hints: Callable[[Any], dict[str, Any]] = cache(partial(typing.get_type_hints, include_extras=True))
Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The range of a number: above `gt`, or at least `ge`; below `lt`, or at most `le`."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None

    def check(self, value: float, *, field: str) -> None:
        """Raise a `ConfigError` where a number is outside."""
        is_low = (self.gt is not None and value <= self.gt) or (self.ge is not None and value < self.ge)
        is_high = (self.lt is not None and value >= self.lt) or (self.le is not None and value > self.le)
        require(not (is_low or is_high), field=field, value=value, rule=self.rule)

    @property
    def rule(self) -> str:
        """Return the range in words."""
        if self.lt is None and self.le is None:
            if (self.gt, self.ge) in ((0, None), (None, 0)):
                return "must be positive" if self.gt == 0 else "must not be negative"
            return f"must be at least {self.ge:g}" if self.gt is None else f"must be above {self.gt:g}"
        low = f"({self.gt:g}" if self.gt is not None else f"[{self.ge:g}"
        return f"must be in {low}, " + (f"{self.lt:g})" if self.lt is not None else f"{self.le:g}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a text: a regular expression that all of it matches, and the rule in words."""

    pattern: str
    rule: str

    def check(self, value: str, *, field: str) -> None:
        """Raise a `ConfigError` where a text has another form."""
        require(re.fullmatch(self.pattern, value) is not None, field=field, value=value, rule=self.rule)


PositiveInt = Annotated[int, Bounds(gt=0)]
NonNegativeInt = Annotated[int, Bounds(ge=0)]
PositiveFloat = Annotated[float, Bounds(gt=0)]
NonNegativeFloat = Annotated[float, Bounds(ge=0)]
Probability = Annotated[float, Bounds(ge=0, lt=1)]
Share = Annotated[float, Bounds(gt=0, le=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A configuration whose values are checked when it is made: bounds at fields, names of enumerations, its own name.

    Attributes:
        part: its dotted key in the whole, in messages; empty: it is the whole.
    """

    part: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check(self)


def check(config: Settings) -> None:
    """Check each field of a configuration by itself; the plain name of a member or of a part becomes what it names.

    Raises:
        ConfigError: a value breaks the bound of its field, or is not one of an enumeration or of its dataclass's name.
    """
    for name, hint in _hints(type(config)).items():
        value, key = getattr(config, name), f"{config.part}.{name}".removeprefix(".")
        is_member_named = isinstance(hint, type) and issubclass(hint, enum.Enum) and not isinstance(value, hint)
        if is_member_named or (isinstance(value, str | Mapping) and alternatives_of(hint) is not None):
            object.__setattr__(config, name, coerce(value, hint, key=key))
        members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        for rule in (each for member in members for each in getattr(member, "__metadata__", ())):
            if isinstance(rule, Bounds) and isinstance(value, int | float):
                rule.check(value, field=key)
            if isinstance(rule, Form) and isinstance(value, str):
                rule.check(value, field=key)
        if name == NAME and (own := default_name(type(config))):
            require(value == own, field=key, value=value, rule=f"these are the settings of '{own}'")


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
    hints = hints_of(kind)
    for name in values:
        if name not in hints:
            raise ConfigError(unknown_key(prefix + name, [prefix + other for other in hints]))
    kept = {name: kept_hint(hints[name], getattr(like, name, None)) for name in values}
    return kind(**{name: coerce(value, kept[name], key=prefix + name) for name, value in values.items()})


def restore_json(kind: type[C], text: str, *, what: str) -> C:
    """Return the record of a JSON file's text.

    Raises:
        IntegrityError: it is none; the message says that `what` was expected.
    """
    try:
        return restore(kind, json.loads(text))
    except (ValueError, TypeError, AttributeError, ConfigError) as problem:
        raise IntegrityError(f"expected {what}, found {problem}") from problem


class JsonFile:
    """A record that is a JSON file of a lake: keys in order, a line a value, a newline at the end.

    Attributes:
        what: the file is, in messages.
    """

    __slots__ = ()
    what: ClassVar[str]

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(dataclasses.asdict(cast(Any, self)), sort_keys=True, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, where: str = "") -> Self:
        """Return the record of a file's text.

        Raises:
            IntegrityError: it is none, or of another format.
        """
        return restore_json(cls, text, what=f"{where}: {cls.what}" if where else cls.what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """What a field can be chosen from by name.

    Attributes:
        names: of the parts.
        find: gives the dataclass of a name.
        base: that each is on top of.
        group: of the parts, where they are of one.
        is_sum: whether several are chosen, joined by `+`.
    """

    names: tuple[str, ...]
    find: Callable[[str], Any]
    base: Any = object
    group: Group | None = None
    is_sum: bool = False

    def kind(self, name: Any, *, key: str) -> Any:
        """Return the dataclass of a name.

        Raises:
            ConfigError: there is none of that name, its package cannot be loaded, or it is another kind of part.
        """
        require(name in self.names, field=key, value=name, rule=f"expected one of {', '.join(self.names)}")
        found = self.find(name)
        rule = f"expected a dataclass on top of {self.base.__module__}.{self.base.__name__}"
        require(issubclass(found, self.base), field=key, value=name, rule=rule)
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        require(not missing, field=key, value=name, rule=f"{found.__name__} does not define {missing}")
        return found

    def rebuilt(self, old: Any, text: str, *, key: str) -> Any:
        """Return the values of the parts that a text names; what was set of the old ones stays where they have it."""
        parts: list[dict[str, Any]] = old if self.is_sum else [old]
        was_set: dict[str, Any] = {}
        for part in parts:
            default = resolve(self.find(part[NAME])())
            was_set |= {name: value for name, value in part.items() if value != default[name]}
        names = canonical_names(self.group, text, key=key) if self.is_sum and self.group else (text,)
        known = {part[NAME]: part for part in parts}
        made = []
        for name in names:
            default = resolve(self.kind(name, key=key)())
            kept = {setting: value for setting, value in was_set.items() if setting in default}
            made.append(known.get(name) or default | kept)
        return made if self.is_sum else made[0]


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


def hints_of(kind: Any) -> dict[str, Any]:
    """Return the declared types of a dataclass's fields by name, in order."""
    hints = _hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def alternatives_of(hint: Any) -> Alternatives | None:
    """Return what a field of a type is chosen from by name; None for any other field."""
    is_sum = get_origin(hint) is tuple
    inner = get_args(hint)[0] if is_sum else hint
    group = next((each for each in getattr(inner, "__metadata__", ()) if isinstance(each, Group)), None)
    if group is not None:
        names, find, base = tuple(part_names(group)), partial(find_part, group), get_args(inner)[0]
        return Alternatives(names=names, find=find, base=base, group=group, is_sum=is_sum)
    is_union = get_origin(hint) in (Union, types.UnionType)
    kinds = {default_name(kind): kind for kind in get_args(hint) if is_union and dataclasses.is_dataclass(kind)}
    kinds.pop("", None)
    return Alternatives(names=tuple(kinds), find=kinds.__getitem__) if kinds else None


def kept_hint(hint: Any, part: object) -> Any:
    """Return the class that a part has, where nothing in its settings tells it from the others of its type."""
    is_dataclass = dataclasses.is_dataclass(part) and not isinstance(part, type)
    return type(part) if is_dataclass and alternatives_of(hint) is None else hint


def unknown_key(key: str, keys: Iterable[str]) -> str:
    """Return the message on a key that is not there: the nearest one, of those that end alike where there are any."""
    known = list(keys)
    last = {name: name.rsplit(".", 1)[-1] for name in known}
    leaf = key.rsplit(".", 1)[-1]
    near = difflib.get_close_matches(key, [name for name in known if last[name] == leaf], n=1, cutoff=0)
    near = near or difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    like = difflib.get_close_matches(leaf, last.values(), n=1, cutoff=0.5)
    near = near or [name for name in known if last[name] in like]
    hint = f"did you mean '{near[0]}'?" if near else f"valid keys: {', '.join(sorted(known))}"
    return f"unknown key '{key}'; {hint}"


def coerce(value: Any, hint: Any, *, key: str) -> Any:
    """Return `value` as the type `hint`, or raise naming the key, what was expected and what was found."""
    choice = alternatives_of(hint)
    if choice is not None and isinstance(value, list | tuple | Mapping | str):
        return _chosen(value, choice, key=key)
    if get_origin(hint) is not None:
        return _coerce_generic(value, hint, key=key)
    if hint is Any:
        return value
    if isinstance(hint, type):
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            return restore(hint, value, prefix=f"{key}.")
        if issubclass(hint, enum.Enum) and value in [member.value for member in hint]:
            return hint(value)
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, hint) and not (hint in (int, float) and isinstance(value, bool)):
            return value
    raise _mismatch(value, hint, key=key)


def _coerce_generic(value: Any, hint: Any, *, key: str) -> Any:
    """Return `value` as a type with arguments: `Annotated`, a union, `Literal`, a mapping or a tuple."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        found = coerce(value, arguments[0], key=key)
        for bounds in arguments[1:]:
            bounds.check(found, field=key)
        return found
    if origin in (Union, types.UnionType):
        return _coerce_union(value, arguments, key=key)
    if origin is Literal and value in arguments:
        return value
    if origin is Mapping and isinstance(value, Mapping):
        return {name: coerce(item, arguments[1], key=f"{key}.{name}") for name, item in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(coerce(item, arguments[0], key=key) for item in value)
    raise _mismatch(value, hint, key=key)


def _mismatch(value: Any, hint: Any, *, key: str) -> ConfigError:
    is_choice = get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, enum.Enum))
    found = "" if is_choice else f", found {_describe(type(value))}"
    return ConfigError(f"{key} = {value!r}: expected {_describe(hint)}{found}")


def _chosen(value: Any, choice: Alternatives, *, key: str) -> Any:
    """Return the part that a value's name chooses, or of a sum the parts."""
    if choice.is_sum:
        parts = canonical_names(cast(Group, choice.group), value, key=key) if isinstance(value, str) else value
        return tuple(_chosen(each, dataclasses.replace(choice, is_sum=False), key=key) for each in parts)
    values = {NAME: value} if isinstance(value, str) else value
    return restore(choice.kind(values.get(NAME), key=f"{key}.{NAME}"), values, prefix=f"{key}.")


def _coerce_union(value: Any, members: tuple[Any, ...], *, key: str) -> Any:
    *others, last = [member for member in members if value is None or member is not type(None)]
    for member in others:
        with contextlib.suppress(ConfigError):
            return coerce(value, member, key=key)
    return coerce(value, last, key=key)


def _describe(hint: Any) -> str:
    if hint is type(None):
        return "null"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "one of " + ", ".join(str(member.value) for member in hint)
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list of {_describe(get_args(hint)[0])}"
    return {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )
