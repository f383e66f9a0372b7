"""Settings by dotted keys: `--set objective.margin=0.3`, and the keys that a configuration has."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, get_args, get_origin

import msgspec

from schemas.configs import (
    Alternatives,
    C,
    Json,
    alternatives_of,
    coerce,
    hints_of,
    kept_hint,
    resolve,
    restore,
    unknown_key,
)
from schemas.messages import ConfigError
from schemas.plugins import NAME, SUM, default_name
from schemas.versions import plain


def override(config: C, assignments: Iterable[str]) -> C:
    """Return `config` with dotted `key=value` assignments applied in order, and then checked all at once.

    A value is read as JSON where that gives the field's type (`12`, `true`, `null`, `["a", "b"]`), else as the bare
    text (`ap`). A comma separates the items of a list written bare (`a,b`). Names that choose a part come first,
    wherever they stand: what was set of the old part stays where the new one has it, all else has its default.

    Raises:
        ConfigError: an assignment without `=`, an unknown key (the nearest valid key is named), or a value of the
            wrong type or out of range.
    """
    values = resolve(config)
    pairs = [_assignment(text) for text in assignments]
    choosing = {key for place in places(config, values) if place.choice for key in (place.key, *place.aliases)}
    for key, text in sorted(pairs, key=partial(_order, choosing)):
        known = list(places(config, values))
        addressed = [place for place in known if key == place.key or key in place.aliases]
        if not addressed:
            raise ConfigError(unknown_key(key, [name for place in known for name in (*place.aliases, place.key)]))
        for place in addressed:
            place.assign(text, key=key)
    return restore(type(config), values, like=config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A setting of a configuration, and where its value is kept.

    Attributes:
        key: dotted, as it is listed.
        aliases: other keys that it answers to: `objective.margin` is a setting of each term that has it.
        hint: its declared type.
        kind: dataclass whose docstring says what it means: that it is a field of, or the part that it names.
        holder: JSON-ready values among which its own is.
        choice: what it chooses from, where it names a part.
    """

    key: str
    aliases: tuple[str, ...] = ()
    hint: Any
    kind: Any
    holder: dict[str, Any]
    leaf: str
    choice: Alternatives | None = None

    @property
    def value(self) -> Any:
        """Return its value, JSON-ready; of a choice the name."""
        found = self.holder[self.leaf]
        if self.choice is None:
            return found
        return SUM.join(part[NAME] for part in found) if self.choice.is_sum else found[NAME]

    def assign(self, text: str, *, key: str) -> None:
        """Put the value that a text stands for into the values.

        Raises:
            ConfigError: it is none of the declared type.
        """
        if self.choice is None:
            self.holder[self.leaf] = _parse(text, self.hint, key=key)
        else:
            self.holder[self.leaf] = self.choice.rebuilt(self.holder[self.leaf], text.strip(), key=key)


def places(config: object, values: dict[str, Any]) -> Iterator[Place]:
    """Yield every setting of a configuration in field order; `values` are its own, as `resolve` gives them."""
    yield from _places_of(type(config), values, "", like=config)


def flatten(values: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return nested settings, as `resolve` gives them, under dotted keys, in order.

    The terms of a sum are under their names, where there are several.
    """
    flat: dict[str, Json] = {}
    for name, value in values.items():
        key = prefix + name
        if isinstance(value, list) and value and all(isinstance(each, Mapping) and NAME in each for each in value):
            terms = cast(list[dict[str, Json]], value)
            flat[f"{key}.{NAME}"] = SUM.join(str(term[NAME]) for term in terms)
            for term in terms:
                own = {setting: found for setting, found in term.items() if setting != NAME}
                flat |= flatten(own, f"{key}." if len(terms) == 1 else f"{key}.{term[NAME]}.")
        else:
            flat |= flatten(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return flat


def _assignment(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ConfigError(f"--set {text}: expected key=value")
    return key.strip(), value


def _order(choosing: set[str], pair: tuple[str, str]) -> tuple[bool, int]:
    """Return what assignments are sorted by: outer names before inner ones before all else."""
    key = pair[0]
    is_choice = key in choosing or key.endswith(f".{NAME}")
    return not is_choice, key.removesuffix(f".{NAME}").count(".") if is_choice else 0


def _places_of(
    kind: Any, values: dict[str, Any], prefix: str, *, like: object = None, aliases: tuple[str, ...] = ()
) -> Iterator[Place]:
    """Yield the settings of a part whose keys begin with `prefix`, and which also go by other beginnings."""
    for name, declared in hints_of(kind).items():
        before = getattr(like, name, None)
        hint, choice, value = kept_hint(declared, before), alternatives_of(declared), values[name]
        key, others = prefix + name, tuple(alias + name for alias in aliases)
        if choice is not None:
            yield Place(
                key=f"{key}.{NAME}",
                aliases=(key, *others, *(f"{other}.{NAME}" for other in others)),
                hint=Literal[choice.names],
                kind=kind if choice.is_sum else choice.find(value[NAME]),
                holder=values,
                leaf=name,
                choice=choice,
            )
        if choice is not None and choice.is_sum:
            for term in value:
                inner, short = f"{key}.{term[NAME]}.", f"{key}."
                longest, shortest = (inner, short) if len(value) > 1 else (short, inner)
                yield from _places_of(choice.find(term[NAME]), term, longest, aliases=(shortest,))
        elif choice is not None or dataclasses.is_dataclass(hint):
            own = hint if choice is None else choice.find(value[NAME])
            beginnings = tuple(f"{other}." for other in others)
            yield from _places_of(own, value, f"{key}.", like=before, aliases=beginnings)
        elif name != NAME or not default_name(kind):
            yield Place(key=key, aliases=others, hint=hint, kind=kind, holder=values, leaf=name)


def _parse(text: str, hint: Any, *, key: str) -> Any:
    """Read one override's text as the declared type."""
    text = text.strip()
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        value = text
    try:
        return plain(coerce(value, hint, key=key))
    except ConfigError:
        if get_origin(hint) is tuple and not isinstance(value, list):
            item = get_args(hint)[0]
            return [_parse(part, item, key=key) for part in text.split(",")] if text else []
        with contextlib.suppress(ConfigError):
            return plain(coerce(text, hint, key=key))
        raise
