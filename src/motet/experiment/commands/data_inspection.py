"""The inspections of a run's corpora: as tables for `motet check` and the report, and as a file in the run folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.datasets.inspection.corpus_inspection import CorpusInspection
from motet.datasets.inspection.finding import Finding, format_share
from motet.datasets.inspection.findings import find_problems
from motet.datasets.inspection.inspection_table import describe_inspection
from motet.experiment.build.federation import ClientGroup, Federation
from motet.experiment.recipe.run_config import RunConfig
from motet.tasks.language_modeling import LanguageModeling
from motet.transport.json_files import read_json, write_json

INSPECTION_FILE = "inspection.json"


@dataclass(frozen=True)
class GroupInspection:
    """The inspection of a group's corpus. Groups may share a corpus, but not the length at which texts are cut."""

    group: str
    corpus: CorpusInspection
    max_tokens: int
    truncated: int | None  # texts that are cut at max_tokens; None: long texts are split into several examples
    num_texts: int

    @property
    def table(self) -> dict[str, str]:
        """The rows of the table, with the truncated texts before the samples."""
        rows = describe_inspection(self.corpus)
        samples = {name: rows.pop(name) for name in list(rows) if name.startswith("sample ")}
        if self.truncated is not None:
            share = format_share(self.truncated, self.num_texts)
            rows["truncated"] = f"{self.truncated:,} texts at model.max_tokens={self.max_tokens} ({share})"
        return {**rows, **samples}

    @property
    def findings(self) -> list[Finding]:
        return find_problems(self.corpus)

    def to_dict(self, with_samples: bool) -> dict[str, Any]:
        return {**vars(self), "corpus": self.corpus.to_dict(with_samples)}


def collect_inspections(config: RunConfig, federation: Federation) -> list[GroupInspection]:
    """Return the inspection of each group's corpus. Groups with the same corpus and max_tokens have one."""
    inspections = []
    known: set[tuple[int, int]] = set()
    for group, group_config in zip(federation.groups, config.client_groups, strict=True):
        max_tokens = group_config.model.max_tokens
        if group.inspection is None or (id(group.inspection), max_tokens) in known:
            continue
        known.add((id(group.inspection), max_tokens))
        inspections.append(
            GroupInspection(
                group=group.name,
                corpus=group.inspection,
                max_tokens=max_tokens,
                truncated=count_truncated(group, max_tokens),
                num_texts=len(group.features.lengths),
            )
        )
    return inspections


def count_truncated(group: ClientGroup, max_tokens: int) -> int | None:
    """Count the texts that reach `max_tokens`; None if no text is truncated, but split into several examples."""
    is_grouped = isinstance(group.task, LanguageModeling) and group.task.group_texts
    if is_grouped or group.features.example_offsets is not None:
        return None
    return int((group.features.lengths >= max_tokens).sum())


def write_inspections(folder: Path, config: RunConfig, federation: Federation, *, with_samples: bool) -> None:
    """Write the inspections to the folder of a run. Leave samples out if others may read it, as in a deployment."""
    inspections = collect_inspections(config, federation)
    write_json(folder / INSPECTION_FILE, [inspection.to_dict(with_samples) for inspection in inspections])


def read_inspections(folder: Path) -> list[GroupInspection]:
    """Read the inspections of a run; runs of earlier versions have none."""
    values = read_json(folder / INSPECTION_FILE, list[GroupInspection]) or []
    return [GroupInspection(**{**each, "corpus": CorpusInspection.from_dict(each["corpus"])}) for each in values]


def describe_findings(inspections: list[GroupInspection]) -> Iterator[str]:
    """Yield one line for each finding, with the name of the corpus if there are several."""
    has_several = len({inspection.corpus.name for inspection in inspections}) > 1
    for inspection in inspections:
        for finding in inspection.findings:
            yield f"{inspection.corpus.name}: {finding}" if has_several else str(finding)
