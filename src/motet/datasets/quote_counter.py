"""Count what may be a mistake with quotation marks in a table, for the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from motet.datasets.data_file import DataFile


@dataclass
class QuoteCounter:
    """Counts fields in quotation marks that are part of the text, and rows of several lines.

    If quotation marks enclose fields, those after a blank are part of the text.
    """

    has_quotes: bool = False  # whether quotation marks enclose fields
    num_quoted: int = 0
    num_multiline: int = 0
    longest: tuple[int, int] = (0, 0)  # number of lines, first line

    @property
    def prefix(self) -> str:
        """The start of a field that is counted."""
        return ' "' if self.has_quotes else '"'

    def add_fields(self, fields: Iterable[str]) -> None:
        """Count fields such as "text" if quotation marks do not enclose fields; otherwise, those with blanks before."""
        self.num_quoted += sum(field.startswith(self.prefix) and looks_quoted(field.strip(" ")) for field in fields)

    def add_row(self, number: int, num_lines: int) -> None:
        """Count a row that starts at line `number`, if it has several lines."""
        if num_lines > 1:
            self.num_multiline += 1
            self.longest = max(self.longest, (num_lines, number))

    def write_notes(self, file: DataFile) -> None:
        if self.num_quoted:
            advice = "Remove the blanks before them" if self.has_quotes else "Set data.quoting=csv"
            file.log.warn(
                f"{file.name}: fields in quotation marks, which are part of the text: {self.num_quoted:,}. {advice} if they "
                "mark fields."
            )
        if self.num_multiline:
            file.log.note(
                f"{file.name}: rows of several lines: {self.num_multiline:,}; the longest has {self.longest[0]:,} lines and "
                f"starts at line {self.longest[1]}."
            )


def looks_quoted(field: str) -> bool:
    """True for a text in quotation marks in which all other quotation marks are doubled."""
    return len(field) > 1 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', "")
