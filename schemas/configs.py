"""Configurations as frozen dataclasses: dotted overrides, plain dictionaries and back, with clear errors.

A configuration is a frozen dataclass whose fields are scalars, enumerations (`Literal` or `StrEnum`), tuples of
scalars, or further such dataclasses. Three kinds of field are chosen by a name:

    schedule: Plateau | Steps                          one of these, distinguished by the default of `name`
    text: Annotated[TowerSettings, TEXT_TOWERS]        one part of a group (`schemas.plugins`)
    objective: tuple[Annotated[Term, OBJECTIVES], ...] several parts, a sum; named as `cross-document+coherence`

    --set text.name=gru (or text=gru)         chooses a part; what was set of the old one stays where the new one has it
    --set objective.margin=0.3                a setting of every term that has it
    --set objective.cross-document.margin=0.3 of one of several terms

Values are checked and converted by msgspec. A bound stands at its field (`PositiveInt`, `Annotated[float, Meta(ge=0,
lt=1)]`, a text's `Meta(pattern=..., description=...)`) and holds for every configuration that is a `Settings`, however
it is made; msgspec ignores other marks in an `Annotated`. What settings mean together is checked by their own
`__post_init__`.
"""

import dataclasses
import difflib
import enum
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from schemas.messages import ConfigError, IntegrityError
from schemas.plugins import NAME, Group, canonical_names, default_name, find_part, part_names
from schemas.versions import plain

C = TypeVar("C")
_hints: Callable[[Any], dict[str, Any]] = cache(partial(typing.get_type_hints, include_extras=True))
Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


class Outside(enum.StrEnum):
    """Why a setting is no part of a version's name: a mark at its field (`outside`)."""

    PACE = "pace"  # how fast a build is, and whether its failures end it
    REACH = "reach"  # what hosts give: what was read is digested
    PATH = "path"  # where a file is: its content is digested


PositiveInt = Annotated[int, Meta(gt=0)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]
Probability = Annotated[float, Meta(ge=0, lt=1)]
Share = Annotated[float, Meta(gt=0, le=1)]


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
    """Check and convert each field of a configuration by itself; a nested configuration has checked itself.

    Raises:
        ConfigError: a value breaks the bound of its field, or is not one of an enumeration or of its dataclass's name.
    """
    for name, hint in hints_of(type(config)).items():
        value, key = getattr(config, name), f"{config.part}.{name}".removeprefix(".")
        if not dataclasses.is_dataclass(value):
            object.__setattr__(config, name, coerce(value, hint, key=key))
        if name == NAME and (own := default_name(type(config))):
            require(value == own, field=key, value=value, rule=f"these are the settings of '{own}'")


def outside(default: C, why: Outside) -> C:
    """Return a field of a configuration with a default, marked as no part of a version's name."""
    return dataclasses.field(default=default, metadata={Outside: why})


def naming(config: Any) -> dict[str, Json]:
    """Return the settings that are part of a version's name, as `resolve` does."""
    values = dict[str, Json]()
    for each in dataclasses.fields(config):
        if Outside not in each.metadata:
            value = getattr(config, each.name)
            values[each.name] = naming(value) if dataclasses.is_dataclass(value) else plain(value)
    return values


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
        ConfigError: a key is unknown or missing, or a value has the wrong type.
    """
    hints = hints_of(kind)
    for name in values:
        if name not in hints:
            raise ConfigError(unknown_key(prefix + name, [prefix + other for other in hints]))
    for field in dataclasses.fields(cast(Any, kind)):
        is_needed = field.default is field.default_factory is dataclasses.MISSING
        if field.name not in values and is_needed:
            raise ConfigError(f"{prefix}{field.name}: expected a value, found none")
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
    choice, origin, arguments = alternatives_of(hint), get_origin(hint), get_args(hint)
    if choice is not None and isinstance(value, list | tuple | Mapping | str):
        return _chosen(value, choice, key=key)
    if origin is tuple and isinstance(value, list | tuple):
        hints = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        require(len(hints) == len(value), field=key, value=value, rule=f"expected {len(hints)} values")
        return tuple(coerce(item, each, key=key) for item, each in zip(value, hints, strict=True))
    if origin is Mapping and isinstance(value, Mapping):
        return {name: coerce(item, arguments[1], key=f"{key}.{name}") for name, item in value.items()}
    kinds = [kind for kind in (hint, *arguments) if dataclasses.is_dataclass(kind)]
    if kinds and isinstance(value, Mapping):
        return restore(cast(type[Any], kinds[0]), value, prefix=f"{key}.")
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as problem:
        raise ConfigError(f"{key} = {value!r}: {_rule(hint) or str(problem)[:1].lower() + str(problem)[1:]}") from None


def _rule(hint: Any) -> str:
    """Return the rule of a type in words, where it says it better than msgspec: its description, or its choices."""
    described = [each.description for each in getattr(hint, "__metadata__", ()) if isinstance(each, Meta)]
    names = get_args(hint) if get_origin(hint) is Literal else hint if isinstance(hint, enum.EnumType) else ()
    return "".join(filter(None, described)) or (names and f"expected one of {', '.join(map(str, names))}") or ""


def _chosen(value: Any, choice: Alternatives, *, key: str) -> Any:
    """Return the part that a value's name chooses, or of a sum the parts."""
    if dataclasses.is_dataclass(value):
        return value
    if choice.is_sum:
        parts = canonical_names(cast(Group, choice.group), value, key=key) if isinstance(value, str) else value
        return tuple(_chosen(each, dataclasses.replace(choice, is_sum=False), key=key) for each in parts)
    values = {NAME: value} if isinstance(value, str) else value
    return restore(choice.kind(values.get(NAME), key=f"{key}.{NAME}"), values, prefix=f"{key}.")
