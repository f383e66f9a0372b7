"""Rows of published files: of CSV and TSV, of JSON, and of tables (Parquet, Arrow).

CSV is a file of values between commas, tabs, semicolons or pipes, with a header.

    Index|q2|qimg|stim_txt              a quoted cell may hold delimiters and line breaks
    0|True|1.jpg|"Cut the boards."

A stray quotation mark costs its own row alone: where what begins at a line is no row, that line is broken, and reading
goes on at the next line. A cell of more than `MAX_CELL_LINES` lines is no cell.

JSON is read whole.

    read_items     [value, ...]                                each item
    read_lists     {"images": [...], "annotations": [...]}     (name, item) of each item of the lists that are named
    read_mapping   {"id": value, ...}                          a dict of values of one type

`read_items` is for files of gigabytes: msgspec only says where each value is, and values are parsed one by one. The
other two are for files of some 150 MB, which Python's own parser takes whole. A value with a byte that is not UTF-8
is a `FieldError` in its place. A file that is cut off, or is no JSON, is one `BrokenInputError`: what stands before
the damage is not used.

`read_rows` gives the rows of a corpus in any of these forms as records, without the pictures in them.
"""

import codecs
import csv
import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from pipelines.files import MAX_LINE_BYTES, BrokenInputError, input_file, read_lines
from pipelines.sources.fields import Object, typed
from pipelines.sources.records import FieldError, damage_of, json_lines, json_object, object_or_problem, utf8
from pipelines.tables import is_bytes, is_table, read_batches, read_schema
from schemas.failures import Reason
from schemas.messages import BuildError

Cells = dict[str, str]  # cells by column name, without space around them
Line = tuple[int, str]  # its number, and its text with the line break
MAX_CELL_LINES = 100
DELIMITED = (".csv", ".tsv")
_DELIMITERS = ",|\t;"
_MANY_COLUMNS = 5  # as many by chance in each line of a text are unlikely
T = TypeVar("T")
MAX_BYTES = 4 * 2**30  # of a file, decompressed
_PIECE_BYTES = 2**20
Row = tuple[int, dict[str, Any]]  # its number from 0, and its values by column


def read_table(path: str) -> tuple[list[str], Iterator[tuple[str, Cells | FieldError]]]:
    """Return the columns of a file, and its rows, which can be read once, under `<file name>:<first line>`.

    The delimiter is the one that the header has most of.

    Raises:
        BuildError: there is no header.
        NotFoundError: there is no such file.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))  # of the process: there is no other
    lines = read_lines(path)
    try:
        header = utf8(next(lines, (0, b""))[1])
    except (BrokenInputError, FieldError) as problem:
        raise BuildError(f"{path}: expected a header: {problem}") from problem
    if not header:
        raise BuildError(f"{path}: expected a header, found an empty file")
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        columns = [cell.strip() for cell in next(csv.reader([header], delimiter=delimiter))]
    except csv.Error as problem:
        raise BuildError(f"{path}: expected a header: {problem}") from problem
    return columns, _delimited_rows(lines, columns, input_file(path).name, delimiter)


def _delimited_rows(
    lines: Iterator[tuple[int, bytes]], columns: list[str], name: str, delimiter: str
) -> Iterator[tuple[str, Cells | FieldError]]:
    problems: list[BrokenInputError] = []

    def texts() -> Iterator[Line]:
        try:
            for number, line in lines:
                yield number, line.decode("utf-8", errors="surrogateescape") + "\n"
        except BrokenInputError as problem:
            problems.append(problem)

    source, ahead = texts(), deque[Line]()
    while ahead or _read_on(source, ahead):
        where = f"{name}:{ahead[0][0]}"
        record, used = _record(source, ahead, columns, delimiter)
        yield where, record
        for _ in range(used):
            ahead.popleft()
    if problems:
        raise problems[0]


def _read_on(source: Iterator[Line], ahead: deque[Line]) -> bool:
    before = len(ahead)
    ahead.extend(islice(source, 1))
    return len(ahead) > before


def _record(
    source: Iterator[Line], ahead: deque[Line], columns: list[str], delimiter: str
) -> tuple[Cells | FieldError, int]:
    """Return the row that begins with the first line ahead, and how many lines it has: one where it is broken."""
    used = size = 0

    def lines() -> Iterator[str]:
        nonlocal used, size
        while used < MAX_CELL_LINES and size <= MAX_LINE_BYTES and (used < len(ahead) or _read_on(source, ahead)):
            text = ahead[used][1]
            used, size = used + 1, size + len(text)
            yield text

    try:
        cells = next(csv.reader(lines(), delimiter=delimiter, strict=True))
    except csv.Error as problem:
        hint = f" within {used} lines; is a quotation mark missing?" if used > 1 else ""
        return FieldError(Reason.BROKEN_RECORD, f"expected {len(columns)} columns: {problem}{hint}"), 1
    if len(cells) != len(columns):
        return FieldError(Reason.BROKEN_RECORD, f"expected {len(columns)} columns, found {len(cells)}"), 1
    if used > 1 and len(columns) >= _MANY_COLUMNS and _are_rows(list(islice(ahead, 1, used)), len(columns), delimiter):
        message = f"a cell holds {used - 1} lines that are rows; is a quotation mark missing?"
        return FieldError(Reason.BROKEN_RECORD, message), 1
    if (damage := damage_of("".join(cells))) is not None:
        return damage, used
    return dict(zip(columns, (cell.strip() for cell in cells), strict=True)), used


def _are_rows(lines: list[Line], columns: int, delimiter: str) -> bool:
    """Return whether each line alone has as many cells as a row."""
    try:
        return all(len(next(csv.reader([text], delimiter=delimiter), [])) == columns for _, text in lines)
    except csv.Error:  # a carriage return alone
        return False


def read_items(address: str | Path, name: str = "", start: int = 1) -> Iterator[tuple[str, Object | FieldError]]:
    """Yield each object of the list that a file holds, under `<name>:<number>`.

    Args:
        address: of the file.
        name: what it goes by; "": its own name.
        start: number of the first.

    Raises:
        BrokenInputError: the file cannot be read, or holds no list.
        NotFoundError: there is no such file.
    """
    for count, value in enumerate(_json_values(address), start=start):
        found = json_object(bytes(value)) if isinstance(value, msgspec.Raw) else object_or_problem(value)
        yield f"{name or input_file(address).name}:{count}", found


def read_lists(
    address: str | Path, *names: str, needed: Collection[str] = ()
) -> Iterator[tuple[str, tuple[str, object] | FieldError]]:
    """Yield each item of the lists of these names in a file's object, as (name, item), under `<file name>#<number>`.

    Args:
        address: of the file.
        names: of the lists, in the order in which they come.
        needed: those that must have an item.

    Raises:
        BrokenInputError: the file cannot be read, or holds no object.
        BuildError: a list that is needed is not there, or empty.
        NotFoundError: there is no such file.
    """
    file = input_file(address).name
    whole, is_damaged = _parsed(address)
    if not isinstance(whole, dict):
        raise BrokenInputError(f"{file}: expected an object", file)
    lists = {name: items for name in names if isinstance(items := whole.get(name), list)}
    if missing := ", ".join(sorted(name for name in needed if not lists.get(name))):
        raise BuildError(f"{address}: expected items in the lists {', '.join(needed)}; found none in {missing}")
    for name, items in lists.items():
        for count, item in enumerate(items, start=1):
            damage = damage_of(json.dumps(item, ensure_ascii=False)) if is_damaged else None
            yield f"{file}#{count} ({name})", damage or (name, item)


def read_mapping(address: str | Path, kind: type[T]) -> dict[str, T]:
    """Return the members of the object that a file holds, each of which must be of one type.

    Raises:
        BuildError: the file holds no such object.
        NotFoundError: there is no such file.
    """
    try:
        whole, is_damaged = _parsed(address)
        damage = damage_of(json.dumps(whole, ensure_ascii=False)) if is_damaged else None
        if damage is not None:
            raise damage
        return {name: typed(value, kind, f"$.{name}") for name, value in typed(whole, Object).items()}
    except (BrokenInputError, FieldError) as problem:
        raise BuildError(f"{address}: {problem}") from problem


def _parsed(address: str | Path) -> tuple[Any, bool]:
    """Return what a file holds, and whether bytes in it are not UTF-8: in Python's text they are lone surrogates."""
    text = _read(address).decode("utf-8", errors="surrogateescape")
    try:
        return json.loads(text, strict=False), damage_of(text) is not None
    except (ValueError, RecursionError) as problem:
        name = input_file(address).name
        raise BrokenInputError(f"{name}: expected JSON: {problem}", name) from problem


def _json_values(address: str | Path) -> list[Any]:
    """Return the values of a file's list as `msgspec.Raw`.

    What msgspec refuses and Python's parser takes, such as halves of surrogate pairs and NaN, comes as Python values.
    """
    try:
        return msgspec.json.decode(_read(address), type=list[msgspec.Raw])
    except (ValueError, RecursionError):
        whole, is_damaged = _parsed(address)
    if is_damaged or not isinstance(whole, list):
        name = input_file(address).name
        raise BrokenInputError(f"{name}: expected a list in UTF-8", name)
    return whole


def _read(address: str | Path) -> bytearray:
    """Return the bytes of a file without a byte order mark."""
    file, data = input_file(address), bytearray()
    with file.open() as stream:
        while len(data) <= MAX_BYTES and (piece := stream.read(_PIECE_BYTES)):
            data += piece
    if len(data) > MAX_BYTES:
        raise BrokenInputError(f"{file.name}: expected at most {MAX_BYTES} bytes", file.name)
    return data.removeprefix(codecs.BOM_UTF8)


def columns_of(shard: str) -> list[str]:
    """Return the columns of a file; of one of JSON, the fields of its first object.

    Raises:
        BrokenInputError: it cannot be read.
        NotFoundError: there is no such file.
    """
    if is_table(shard):
        return list(read_schema(shard).names)
    if _is_delimited(shard):
        try:
            return read_table(shard)[0]
        except BuildError as problem:
            raise BrokenInputError(str(problem), PurePosixPath(shard).name) from problem
    return next((list(record) for _, record in _objects(shard, "") if not isinstance(record, FieldError)), [])


def _is_delimited(shard: str) -> bool:
    return any(suffix in PurePosixPath(shard.lower()).suffixes for suffix in DELIMITED)


def _objects(shard: str, place: str) -> Iterator[tuple[str, dict[str, Any] | FieldError]]:
    return read_items(shard, place, 0) if ".json" in PurePosixPath(shard.lower()).suffixes else json_lines(shard, place)


def _read_texts(shard: str, place: str) -> Iterator[tuple[str, Row | FieldError]]:
    """Yield each row of a file without types."""
    rows: Iterable[tuple[str, Mapping[str, Any] | FieldError]] = _objects(shard, place)
    if _is_delimited(shard):
        rows = ((f"{place}:{where.rpartition(':')[2]}", row) for where, row in read_table(shard)[1])
    for number, (where, row) in enumerate(rows):
        if isinstance(row, FieldError):
            yield where, row
        else:
            yield where, (number, {name: None if value == "" else value for name, value in row.items()})


def read_rows(
    shard: str, place: str, columns: Sequence[str], *, needed: Sequence[str] = (), present: Sequence[str] = ()
) -> Iterator[tuple[str, Row | FieldError]]:
    """Yield each row under `<place>:<number>`; a column that the file lacks is not in its rows.

    Args:
        shard: its path.
        place: of the shard among all.
        columns: that are read.
        needed: those that must be there.
        present: columns of which no bytes are read, but whether they are there.

    Raises:
        BrokenInputError: the rest of the file cannot be read.
        NotFoundError: there is no such file.
    """
    if not is_table(shard):
        yield from _read_texts(shard, place)
        return
    name = PurePosixPath(shard).name
    schema = read_schema(shard)
    missing = [column for column in needed if column not in schema.names]
    if missing:
        raise BrokenInputError(
            f"{name}: expected the columns {', '.join(needed)}, found {', '.join(schema.names)}", name
        )
    read, flags = ([column for column in names if column in schema.names] for names in (columns, present))
    for first, batch in read_batches(shard, [*read, *flags], present=flags):
        if not set(read) <= {*batch.schema.names}:
            raise BrokenInputError(f"{name}: its rows have other columns than its schema", name)
        for index, values in enumerate(
            _values_of_rows(batch, read, {column: schema.field(column).type for column in flags})
        ):
            number = first + index
            yield f"{place}:{number}", values if isinstance(values, FieldError) else (number, values)


def _without_bytes(array: pa.Array | None, kind: pa.DataType, rows: int) -> list[Any]:
    """Return the values of an array, but for bytes whether they are there; where it is None, they are in every row."""
    if array is None or is_bytes(kind):
        return [True] * rows if array is None else list(array.is_valid().to_pylist())
    if pa.types.is_struct(kind):
        fields = [
            _without_bytes(array.field(field.name) if field.name in array.type.names else None, field.type, rows)
            for field in kind
        ]
        names, is_there = [field.name for field in kind], array.is_valid().to_pylist()
        values = zip(*fields, strict=True) if fields else [()] * rows
        return [
            dict(zip(names, row, strict=True)) if valid else None for row, valid in zip(values, is_there, strict=True)
        ]
    if hasattr(kind, "value_type") and not pa.types.is_dictionary(kind):
        items = [scalar.values if scalar.is_valid else None for scalar in array]
        return [each if each is None else _without_bytes(each, kind.value_type, len(each)) for each in items]
    return list(array.to_pylist())


def _values_of_rows(
    batch: pa.RecordBatch, read: Sequence[str], flags: Mapping[str, pa.DataType]
) -> list[dict[str, Any] | FieldError]:
    """Return the values of each row, or why they cannot be read: text that is no UTF-8, a date that there never was.

    Nothing is read before it is validated: lengths and offsets of a damaged file may lead outside it.
    """
    try:
        batch.validate(full=True)
        rows: list[dict[str, Any] | FieldError] = list(batch.select(list(read)).to_pylist())
        for column, kind in flags.items():
            array = batch.column(column) if column in batch.schema.names else None
            for row, is_there in zip(rows, _without_bytes(array, kind, batch.num_rows), strict=True):
                row[column] = is_there  # type: ignore[index]  # no row is an error yet
        return rows
    except (ValueError, OverflowError) as problem:
        if batch.num_rows > 1:
            slices = (batch.slice(number, 1) for number in range(batch.num_rows))
            return [values for each in slices for values in _values_of_rows(each, read, flags)]
        return [FieldError(Reason.BROKEN_RECORD, f"expected values that can be read: {problem}")]
