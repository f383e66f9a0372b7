"""Conditions on documents, `--where`: a Python expression of a few forms, made an Arrow expression.

    language == "en" and sentences >= 5
    split == "train" and not links is None
    provenance.source in ("wiki", "news") or images > 3

`sentences`, `images` and `links` are the numbers of them (`links` is null where they are unknown). Other names are
columns of the documents part. Nothing of the text is run: whatever is no such form is refused.
"""

import ast
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.documents import document_schema
from schemas.errors import UsageError

COUNTED = ("sentences", "images", "links")
TEXTS = ("id", "dataset", "language", "split")
_PROVENANCE = tuple(field.name for field in document_schema().field("provenance").type)
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], pc.Expression]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def parse_where(text: str) -> pc.Expression:
    """Return the Arrow expression of a condition on the rows of a documents part.

    Raises:
        UsageError: it is no condition, or has a name or form that is not known.
    """
    try:
        return _condition(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise UsageError(f"--where {text!r}: expected such as 'language == \"en\" and sentences >= 5'") from problem
    except _UnknownFormError as problem:
        raise UsageError(f"--where {text!r}: {problem}") from None


def matching(table: pa.Table, condition: pc.Expression) -> pa.Table:
    """Return the rows of a documents part for which a condition holds.

    Raises:
        UsageError: it compares a column with a value of another type.
    """
    try:
        return table.filter(condition)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as problem:
        raise UsageError(f"--where: {str(problem).splitlines()[0]}") from problem


class _UnknownFormError(Exception):
    """A part of a condition that is none of the known forms."""


def _condition(node: ast.expr) -> pc.Expression:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return reduce(operator.and_, map(_condition, values))
        case ast.BoolOp(op=ast.Or(), values=values):
            return reduce(operator.or_, map(_condition, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_condition(operand)
        case ast.Compare(left=left, ops=[operation], comparators=[right]):
            return _comparison(_column(left), operation, right)
    raise _UnknownFormError(f"{ast.unparse(node)}: expected a comparison, with and, or, not between them")


def _comparison(column: pc.Expression, operation: ast.cmpop, right: ast.expr) -> pc.Expression:
    value = _value(right)
    if isinstance(operation, ast.Is | ast.IsNot) and value is None:
        return column.is_valid() if isinstance(operation, ast.IsNot) else column.is_null()
    if isinstance(operation, ast.In | ast.NotIn) and isinstance(value, tuple | list):
        found = column.isin(list(value))
        return found if isinstance(operation, ast.In) else ~found
    if type(operation) in _COMPARED and isinstance(value, str | int | float):
        return _COMPARED[type(operation)](column, value)
    raise _UnknownFormError(
        f"{ast.unparse(right)}: expected COLUMN OP VALUE with ==, !=, <, <=, >, >=, in (...), is None"
    )


def _column(node: ast.expr) -> pc.Expression:
    match node:
        case ast.Name(id=name) if name in COUNTED:
            return pc.list_value_length(pc.field(name))
        case ast.Name(id=name) if name in TEXTS:
            return pc.field(name)
        case ast.Attribute(value=ast.Name(id="provenance"), attr=name) if name in _PROVENANCE:
            return pc.field("provenance", name)
    names = ", ".join((*COUNTED, *TEXTS, *(f"provenance.{name}" for name in _PROVENANCE)))
    raise _UnknownFormError(f"{ast.unparse(node)}: no such column; columns: {names}")


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError as problem:
        raise _UnknownFormError(f"{ast.unparse(node)}: expected a text, a number, a list of them or None") from problem
