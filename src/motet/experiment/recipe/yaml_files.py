"""Read YAML that someone else may have written.

An alias is a reference, so a file of ten lines can describe a billion values. The safe loader of PyYAML reads it, and
whatever walks through the values or prints them does not come to an end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError
from motet.missing_paths import describe_read_error

MAX_VALUES, MAX_DEPTH = 100_000, 100  # of a file; the largest suite has 2,000 values


def read_yaml(path: Path) -> Any:
    """Read a file with one document, or raise a YAMLError."""
    return parse_yaml(path.read_bytes())


def read_user_yaml(path: Path, source: str, advice: str) -> Any:
    """Read a file that a user named. An error begins with `source`, which named it, and ends with `advice`."""
    try:
        return read_yaml(path)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{source}: {describe_read_error(path, error)} {advice}") from None


def parse_yaml(text: str | bytes) -> Any:
    """Parse one document, or raise a YAMLError. Bytes must be UTF-8 or UTF-16."""
    loader = yaml.SafeLoader(text)  # reads bytes already here, and may raise the error
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count_values(node, {})
        return loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError(f"values are nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # a number with too many digits, a date that does not exist
        raise yaml.YAMLError(str(error)) from None
    finally:
        loader.dispose()


def _count_values(node: yaml.Node, counts: dict[int, int], depth: int = 0) -> int:
    """Return how many values a node describes. `counts` has those of the nodes so far, so that aliases take no time."""
    if depth > MAX_DEPTH:  # also an alias to a value that contains the alias
        raise RecursionError
    if id(node) not in counts:
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        counts[id(node)] = 1 + sum(_count_values(child, counts, depth + 1) for child in children)
        if counts[id(node)] > MAX_VALUES:
            raise yaml.YAMLError(f"it describes more than {MAX_VALUES:,} values; aliases (*name) count each time")
    return counts[id(node)]
