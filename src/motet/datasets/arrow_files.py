"""Read Arrow tables: Parquet, Arrow and Feather files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet

from motet.core.errors import DataError, first_line
from motet.datasets.column_names import check_filled, map_columns
from motet.datasets.compression import open_binary
from motet.datasets.data_file import DataFile
from motet.datasets.raw_table import OPTIONAL_VALUES, REMOVE_OR_RENAME, TableBuilder

BATCH_ROWS = 1 << 14

Place = tuple[int, ...]  # the index of a column; then, for a field of a struct, its index
Batches = tuple[pa.Schema, Iterable[pa.RecordBatch]]


def read_parquet(file: DataFile, table: TableBuilder) -> None:
    _read_batches(file, table, _open_parquet, "Parquet")


def read_arrow(file: DataFile, table: TableBuilder) -> None:
    """Read an Arrow file, an Arrow stream or a Feather file."""
    _read_batches(file, table, _open_arrow, "Arrow")


def _open_parquet(source: Any) -> Batches:
    parquet = pyarrow.parquet.ParquetFile(source)
    return parquet.schema_arrow, parquet.iter_batches(BATCH_ROWS)


def _open_arrow(source: Any) -> Batches:
    magic = source.read(6)
    source.seek(0)
    if magic.startswith(b"FEA1"):
        feather = pyarrow.feather.read_table(source)
        return feather.schema, feather.to_batches(BATCH_ROWS)
    if magic == b"ARROW1":
        reader = pa.ipc.open_file(source)
        return reader.schema, (reader.get_batch(i) for i in range(reader.num_record_batches))
    stream = pa.ipc.open_stream(source)
    return stream.schema, stream


def _read_batches(file: DataFile, table: TableBuilder, open_batches: Callable[[Any], Batches], kind: str) -> None:
    file.log.add_file(file.path)
    table.start_file(file.name, "row", file.constants)
    try:
        add_record_batches(file, table, *open_batches(_open_source(file)))
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{file.name}: not a valid {kind} file ({first_line(error)}). Write it again, or download it again."
        ) from None


def add_record_batches(
    file: DataFile, table: TableBuilder, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> None:
    """Add Arrow data to a table. Errors in the data are ValueErrors or DataErrors."""
    fields = list(_list_fields(schema))
    header = [name for name, _, _ in fields]
    indices = map_columns(file, header)
    for i in indices.values():
        _check_type(file, header[i], fields[i][2])
    places = {name: fields[i][1] for name, i in indices.items()}
    used = {place[0] for place in places.values()}
    table.other_columns.update(dict.fromkeys(name for i, name in enumerate(schema.names) if i not in used))
    known = dict(_list_class_names(_read_features(schema)))
    class_names = {name: known[header[i]] for name, i in indices.items() if header[i] in known}
    for number, columns in _convert_batches(file, class_names, places, batches):
        count = len(next(iter(columns.values())))
        table.add_rows(range(number, number + count), columns)
    if table.num_rows:
        check_filled(file, table, indices, header)


def _list_fields(
    fields: Iterable[pa.Field], prefix: str = "", place: Place = ()
) -> Iterator[tuple[str, Place, pa.Field]]:
    """Yield the columns of a schema and their places. The fields of a struct have names such as `translation.en`."""
    for i, field in enumerate(fields):
        yield prefix + field.name, (*place, i), field
        if pa.types.is_struct(field.type):
            yield from _list_fields(field.type, f"{prefix}{field.name}.", (*place, i))


def _check_type(file: DataFile, column: str, field: pa.Field) -> None:
    """Raise an error for a type of another program, such as a month of pandas, which Arrow stores as a plain number."""
    kind = field.type
    extension = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    if isinstance(kind, pa.BaseExtensionType):
        extension, kind = kind.extension_name, kind.storage_type
    if extension and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(
            f"{file.name}: column '{column}' has the type {extension}, which Motet does not read. Write it as text or as "
            "numbers."
        )


def _open_source(file: DataFile) -> Any:
    if file.path.suffix.lower() == file.suffix:
        return pa.memory_map(str(file.path))
    with open_binary(file.path) as stream:
        return pa.BufferReader(stream.read())


def _convert_batches(
    file: DataFile,
    class_names: Mapping[str, Sequence[str]],
    places: Mapping[str, Place],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of the first row and the columns of each batch. A column without any value is left out."""
    number = 1
    present: set[str] | None = None
    for batch in batches:
        if not len(batch):
            continue
        batch.validate(full=True)
        columns = {name: _fill(name, _select(batch, place)) for name, place in places.items()}
        filled = {name for name, array in columns.items() if array.null_count < len(batch)}
        present = filled if present is None else present
        for name in (present | filled) - OPTIONAL_VALUES.keys():
            array = columns[name]
            if array.null_count or name not in present:
                row = number + pc.index(array.is_null(), True).as_py() if array.null_count else 1
                raise DataError(
                    f"{file.name}, row {row}: column '{name}' has no value. Every row needs one: {REMOVE_OR_RENAME}"
                )
        converted = {}
        for name in (name for name in places if name in filled):
            classes = class_names.get(name)
            converted[name] = _convert_array(columns[name], classes)
            if classes is not None:
                _check_classes(file, number, name, converted[name], len(classes))
        yield number, converted
        number += len(batch)


def _select(batch: pa.RecordBatch, place: Place) -> pa.Array:
    array = batch.column(place[0])
    return pc.struct_field(array, place[1:]) if len(place) > 1 else array


def _fill(name: str, array: pa.Array) -> pa.Array:
    """Give the rows that lack an optional column their value."""
    is_partial = name in OPTIONAL_VALUES and 0 < array.null_count < len(array)
    return array.fill_null(OPTIONAL_VALUES[name]) if is_partial and not pa.types.is_dictionary(array.type) else array


def _convert_array(array: pa.Array, class_names: Sequence[str] | None) -> Any:
    """Return numbers as int64 or float64, text as strings, and classes by name."""
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if class_names is not None:
        return [_name_class(value, class_names) for value in array.to_pylist()]
    kind = array.type
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return array.cast(pa.int64())
    if pa.types.is_floating(kind):
        return array.cast(pa.float64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return array.cast(pa.large_binary()).cast(pa.large_string())
        except pa.ArrowInvalid:  # not UTF-8
            return array.to_pylist()
    return array if pa.types.is_boolean(kind) else array.to_pylist()


def _name_class(value: Any, names: Sequence[str]) -> Any:
    """Replace a class number, or a list of them, by names. An invalid number stays as it is."""
    if isinstance(value, list):
        return [_name_class(element, names) for element in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


def _check_classes(file: DataFile, number: int, name: str, values: Sequence[Any], num_classes: int) -> None:
    """Raise an error for numbers that are no class. Hugging Face marks hidden labels with -1."""
    for row, value in enumerate(values, number):
        invalid = [v for v in (value if isinstance(value, list) else [value]) if not isinstance(v, str)]
        if invalid:
            reason = "the labels are hidden" if invalid[0] == -1 else f"there are {num_classes} classes"
            raise DataError(
                f"{file.name}, row {row}: column '{name}' holds {invalid[0]}, which is not the number of a class: {reason}. "
                "Remove these rows, or set data.path and data.test to files with labels."
            )


def _read_features(schema: pa.Schema) -> Any:
    """Return what Hugging Face `datasets` wrote about the columns."""
    try:
        return json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}


def _list_class_names(features: Any, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the columns that are stored as numbers of classes, with the names of the classes."""
    for column, feature in features.items() if isinstance(features, dict) else ():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else {}
        names = inner.get("names") if isinstance(inner, dict) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            yield prefix + column, names
        elif isinstance(feature, dict) and "_type" not in feature:  # a struct
            yield from _list_class_names(feature, f"{prefix}{column}.")
