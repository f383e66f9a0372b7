"""SVG elements as escaped text, and numbers as the same short text everywhere.

Only what every drawing needs is here; what is drawn is in `figures.py` and `example_graph.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

Attribute = str | float | None


def element(tag: str, *children: str | Markup, **attributes: Attribute) -> Markup:
    """Return one SVG element; text and attribute values are escaped, markup children are kept.

    An attribute's trailing underscore is dropped (`class_`), others become hyphens (`text_anchor`); None leaves the
    attribute out.
    """
    parts = [
        Markup(' {}="{}"').format(_attribute_name(name), value if isinstance(value, str) else number(value))
        for name, value in attributes.items()
        if value is not None
    ]
    inner = join(children)
    opening = Markup("<") + tag + Markup("").join(parts)
    return opening + (Markup(">{}</{}>").format(inner, tag) if inner else Markup("/>"))


def drawing(
    title: str,
    *children: Markup,
    width: float,
    height: float,
    class_: str,
    description: str = "",
    stretched: bool = False,
) -> Markup:
    """Return a whole picture that a screen reader announces by its title, and then its description.

    A `stretched` picture fills the box that the style sheet gives it; others keep their proportions.
    """
    texts = [element("title", title)]
    if description:
        texts.append(element("desc", description))
    return element(
        "svg",
        *texts,
        *children,
        viewBox=f"0 0 {number(width)} {number(height)}",
        preserveAspectRatio="none" if stretched else None,
        class_=class_,
        role="img",
        aria_label=title,
    )


def join(parts: Iterable[str | Markup]) -> Markup:
    """Return parts one after the other, plain text escaped."""
    return Markup("").join(escape(part) for part in parts)


def number(value: float) -> str:
    """Return a coordinate with at most two decimals and no trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _attribute_name(name: str) -> str:
    return name.removesuffix("_").replace("_", "-")
