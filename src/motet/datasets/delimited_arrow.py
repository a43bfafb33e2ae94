"""Read tables of text with pyarrow, in batches. It is used only for files that it reads exactly as Python would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from motet.core.errors import DataError
from motet.datasets.compression import open_binary
from motet.datasets.data_file import DataFile
from motet.datasets.quote_counter import QuoteCounter
from motet.datasets.raw_table import TableBuilder

BLOCK_SIZE = 1 << 22
PARSE_SIZE = 1 << 20  # bytes that a thread of pyarrow parses at once
MAX_ROW_SIZE = 1 << 26
UTF8_MARK = b"\xef\xbb\xbf"
QUOTE, LINE_FEED = ord('"'), ord("\n")


class Dialect(NamedTuple):
    delimiter: str
    has_quotes: bool
    has_header: bool
    skips_blanks: bool = False  # after a delimiter


class UnclearTableError(ValueError):
    """pyarrow may read a table differently than Python."""


class Block(NamedTuple):
    """Whole rows of a table: where they end, and where all quotation marks and line feeds are."""

    data: bytes
    quotes: np.ndarray
    line_feeds: np.ndarray
    ends: np.ndarray

    @staticmethod
    def from_data(data: bytes, has_quotes: bool) -> Block:
        """Find the ends of rows: line feeds that an even number of quotation marks precedes."""
        values = np.frombuffer(data, np.uint8)
        line_feeds = np.flatnonzero(values == LINE_FEED)
        if not has_quotes or b'"' not in data:
            return Block(data=data, quotes=line_feeds[:0], line_feeds=line_feeds, ends=line_feeds)
        quotes = np.flatnonzero(values == QUOTE)
        is_end = np.searchsorted(quotes, line_feeds) % 2 == 0
        return Block(data=data, quotes=quotes, line_feeds=line_feeds, ends=line_feeds[is_end])

    def cut(self) -> tuple[Block, bytes]:
        """Return the whole rows, and the data after them."""
        if not len(self.ends):
            return Block(b"", self.quotes[:0], self.line_feeds[:0], self.ends), self.data
        end = int(self.ends[-1]) + 1
        quotes = self.quotes[: np.searchsorted(self.quotes, end)]
        line_feeds = self.line_feeds[: np.searchsorted(self.line_feeds, end)]
        return Block(self.data[:end], quotes, line_feeds, self.ends), self.data[end:]

    def with_last_end(self) -> Block:
        """Return the last block of a file, in which the last row may end without a line feed."""
        return self if self.data.endswith(b"\n") else self._replace(ends=np.append(self.ends, len(self.data)))

    def check(self, delimiter: str) -> None:
        """Check line ends; that quotation marks enclose whole fields; and that those within a field are doubled."""
        if b"\r" in self.data and self.data.count(b"\r") != self.data.count(b"\r\n"):
            raise UnclearTableError("a carriage return is not at the end of a line")
        if len(self.quotes) % 2:
            raise UnclearTableError("quotation marks do not match")
        if not len(self.quotes):
            return
        values = np.frombuffer(self.data, np.uint8)
        opening, closing = self.quotes[0::2], self.quotes[1::2]
        is_separator = np.zeros(256, bool)
        is_separator[[ord(delimiter), LINE_FEED]] = True
        is_valid = is_separator[values[opening - 1]]
        is_valid[1:] |= opening[1:] == closing[:-1] + 1  # a doubled quotation mark
        is_valid[0] |= opening[0] == 0
        is_separator[[QUOTE, ord("\r")]] = True
        if not is_valid.all() or not is_separator[values[np.minimum(closing + 1, len(values) - 1)]].all():
            raise UnclearTableError("a quotation mark is within a field")


def read_delimited_batches(
    file: DataFile, table: TableBuilder, dialect: Dialect, width: int, indices: Mapping[str, int]
) -> bool:
    """Add the rows of a file to the table. Return False, and add nothing, if the file needs the slow reader."""
    if width < 2 or dialect.skips_blanks or file.encoding.name != "utf-8" or len(dialect.delimiter.encode()) > 1:
        return False
    batches = BatchReader(
        dialect=dialect, width=width, indices=indices, table=TableBuilder(), counter=QuoteCounter(dialect.has_quotes)
    )
    batches.table.start_file(file.name, "line")
    try:
        with open_binary(file.path) as stream:
            has_mark = batches.read(stream)
    except (pa.ArrowException, UnclearTableError, DataError):
        return False
    table.absorb(batches.table)
    file.log.add_file(file.path, "utf-8", file.encoding.reason, has_byte_order_mark=has_mark)
    batches.counter.write_notes(file)
    return True


@dataclass(frozen=True)
class BatchReader:
    """Adds the blocks of a file to a table."""

    dialect: Dialect
    width: int
    indices: Mapping[str, int]
    table: TableBuilder
    counter: QuoteCounter

    def read(self, stream: BinaryIO) -> bool:
        """Read all blocks. Return whether the file starts with a byte-order mark."""
        rest = stream.read(BLOCK_SIZE)
        has_mark = rest.startswith(UTF8_MARK)
        rest = rest.removeprefix(UTF8_MARK)
        number = 1
        while more := stream.read(BLOCK_SIZE):
            block, rest = Block.from_data(rest, self.dialect.has_quotes).cut()
            number = self._add(block, number)
            if len(rest) > MAX_ROW_SIZE:
                raise UnclearTableError("a row is too long")
            rest += more
        self._add(Block.from_data(rest, self.dialect.has_quotes).with_last_end(), number)
        return has_mark

    def _add(self, block: Block, number: int) -> int:
        """Add the rows of a block that starts at line `number`; return the line after it."""
        if not block.data:
            return number
        block.check(self.dialect.delimiter)
        has_header = self.dialect.has_header and number == 1
        last_lines = np.searchsorted(block.line_feeds, block.ends)  # of each row, counted from 0
        num_lines = np.diff(last_lines, prepend=-1)
        if has_header and num_lines[0] > 1:
            raise UnclearTableError("the header has several lines")
        numbers = (number + last_lines - num_lines + 1)[has_header:]
        for row in np.flatnonzero(num_lines > 1).tolist():
            self.counter.add_row(int(number + last_lines[row] - num_lines[row] + 1), int(num_lines[row]))
        self._add_rows(self._parse(block, has_header), numbers, self.counter.prefix.encode() in block.data)
        return number + len(block.line_feeds)

    def _parse(self, block: Block, has_header: bool) -> pa.Table:
        columns = [str(i) for i in range(self.width)]
        max_size = int(np.diff(block.ends, prepend=-1).max())
        return pyarrow.csv.read_csv(
            pa.BufferReader(block.data),
            pyarrow.csv.ReadOptions(
                column_names=columns, block_size=max(PARSE_SIZE, 2 * max_size), skip_rows=int(has_header)
            ),
            pyarrow.csv.ParseOptions(
                delimiter=self.dialect.delimiter,
                quote_char='"' if self.dialect.has_quotes else False,
                newlines_in_values=bool(len(block.quotes)),
            ),
            pyarrow.csv.ConvertOptions(
                include_columns=list(dict.fromkeys(str(i) for i in self.indices.values())),
                column_types=dict.fromkeys(columns, pa.string()),
            ),
        )

    def _add_rows(self, rows: pa.Table, numbers: np.ndarray, may_be_quoted: bool) -> None:
        if len(rows) != len(numbers):
            raise UnclearTableError("there are blank lines")
        start = 0
        for batch in rows.to_batches():
            arrays = {name: batch.column(str(i)) for name, i in self.indices.items()}
            for array in arrays.values() if may_be_quoted else ():
                self.counter.add_fields(array.filter(pc.starts_with(array, self.counter.prefix)).to_pylist())
            self.table.add_rows(_to_range(numbers[start : start + len(batch)]), arrays)
            start += len(batch)


def _to_range(numbers: np.ndarray) -> range | list[int]:
    """Return consecutive numbers as a range, which a table stores without a list."""
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(int(numbers[0]), int(numbers[-1]) + 1)
    return [int(number) for number in numbers]
