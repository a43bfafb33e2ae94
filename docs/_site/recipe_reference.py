"""The reference of recipe keys: type, range, default, meaning and example of each key, from the code.

Ranges are found by trying values: a key accepts exactly what its class accepts. Examples are in `examples.yaml`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import textwrap
import tokenize
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

EXAMPLES = Path(__file__).parent / "examples.yaml"
COMPONENT_LINKS = {
    name: f"see [{table}](components.md#{table.replace(' ', '-')})"
    for name, table in {
        "task": "tasks",
        "partition": "partitions",
        "algorithm": "algorithms",
        "server": "server optimizers",
        "secure": "secure",
        "privacy": "privacy",
        "robust": "robust",
        "attack": "attacks",
        "transport": "transports",
        "codec.up": "codecs",
        "codec.down": "codecs",
    }.items()
}
COLUMNS = ("key", "values", "default", "meaning")
SMALL, LARGE = 1e-9, 10**6
# Values to try, and what it means that a key accepts one but none of those before it.
LOWER_LIMITS = ((-LARGE, ""), (0, " ≥ 0"), (SMALL, " > 0"), (1, " ≥ 1"), (2, " ≥ 2"), (4, " ≥ 4"))
UPPER_LIMITS = ((LARGE, ""), (2, ""), (1, " ≤ 1"), (1 - SMALL, " < 1"))


def recipe_keys() -> str:
    """Return the page with all recipe keys."""
    from motet.experiment.recipe.run_config import GroupConfig, RunConfig
    from motet.learning.solver import Solver

    lines = [
        "# Recipe keys",
        "",
        "A recipe is a YAML file with these keys. Every key has a default, so a recipe contains only what differs.",
        "On the command line, write `section.key=value`, as in the examples.",
        "A section with a `type` takes the options of that type: see [Components](components.md).",
        "",
        "`motet check RECIPE` rejects unknown keys and values out of range before anything is trained.",
        "",
        *describe_fields(RunConfig, "", skip=("recipe",)),
    ]
    for name, kind in (("groups", GroupConfig), ("solver", Solver)):
        lines += ["", f"## {name}", "", docstring(kind), *_section_note(name)]
        lines += ["", *describe_fields(kind, f"{name}.", flat=True)]
    return "\n".join(lines) + "\n"


def solver_keys() -> str:
    """Return the table of the solver's keys for the guide to it."""
    from motet.learning.solver import Solver

    return "\n".join(describe_fields(Solver, "solver."))


def solver_defaults() -> str:
    """Return a table of the settings in which the solver of each algorithm differs from `Solver()`."""
    from motet.algorithms import ALGORITHMS
    from motet.learning.solver import Solver

    names_by_settings: dict[str, list[str]] = {}
    for name, factory in ALGORITHMS.items():
        solver = inspect.signature(factory).parameters["solver"].default
        settings = ", ".join(
            f"`{f.name}={yaml_value(getattr(solver, f.name))}`"
            for f in dataclasses.fields(Solver)
            if getattr(solver, f.name) != f.default
        )
        names_by_settings.setdefault(settings or "none: AdamW with a linear schedule", []).append(f"`{name}`")
    rows = [(", ".join(names), settings) for settings, names in names_by_settings.items()]
    return "\n".join(table(("algorithms", "settings that differ from the defaults below"), rows))


def _section_note(name: str) -> list[str]:
    return ["", "The guide [Local training](../guides/solver.md) explains these keys."] if name == "solver" else []


def describe_fields(kind: type, prefix: str, skip: tuple[str, ...] = (), flat: bool = False) -> list[str]:
    """Return a table of the fields of a class, and the sections below it. `flat`: link to sections instead."""
    comments, hints = field_comments(kind), get_type_hints(kind)
    rows, sections = [], []
    for field in dataclasses.fields(kind):
        default, key = _default(field), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(default) and not hasattr(default, "type"):
            if flat:
                rows.append((_anchor(key), "section", "", f"as in [{field.name}](#{field.name})"))
                continue
            nested = describe_fields(type(default), f"{key}.")
            sections += ["", f"## {key}", "", docstring(type(default)), "", *nested]
        elif field.name not in skip:
            value = yaml_value(getattr(default, "type", default))
            meaning = comments.get(field.name, "").replace("None:", "null:") or COMPONENT_LINKS.get(key, "")
            values = type_name(hints[field.name]) + value_range(kind, field.name)
            rows.append((_anchor(key), values, f"`{value}`", f"{meaning}{_example(key)}"))
            optional = [a for a in get_args(hints[field.name]) if default is None and dataclasses.is_dataclass(a)]
            for section in optional:
                sections += ["", f"## {key}", "", docstring(section), "", *describe_fields(section, f"{key}.")]
    return (key_table(COLUMNS, rows) if rows else []) + sections


def _anchor(key: str) -> str:
    """Return the key with an anchor, so that other pages can link to it."""
    return f"`{key}`{{ #{key} }}"


@cache
def examples() -> Mapping[str, Any]:
    """Return the example of each recipe key."""
    content = yaml.safe_load(EXAMPLES.read_text("utf-8"))
    return dict(content["recipe"])


def _example(key: str) -> str:
    return f"<br>Example: `{key}={yaml_value(examples()[key])}`" if key in examples() else ""


def value_range(kind: Callable[..., Any], name: str) -> str:
    """Return the numbers that a key accepts, such as ` ≥ 0, < 1`. Empty: all, or no number."""
    if not _takes_number(kind, name):
        return ""
    lower = next((text for value, text in LOWER_LIMITS if _accepts(kind, name, value)), "")
    upper = next((text for value, text in UPPER_LIMITS if _accepts(kind, name, value)), "")
    return lower + ("," if lower and upper else "") + upper


def _takes_number(kind: Callable[..., Any], name: str) -> bool:
    """Whether the key takes a number or a list of numbers, and nothing else."""
    hint = get_type_hints(kind.__init__ if inspect.isclass(kind) else kind).get(name)  # type: ignore[misc]
    kinds = {hint, *get_args(hint)} - {types.NoneType, ...}
    return bool(kinds & {int, float}) and not kinds & {str, bool} and get_origin(hint) is not Literal


def _accepts(kind: Callable[..., Any], name: str, value: float) -> bool:
    from motet.core.errors import MotetError
    from motet.experiment.recipe.config_parsing import instantiate

    required = {"recipe": ""} if "recipe" in inspect.signature(kind).parameters else {}
    try:
        instantiate(kind, {**required, name: value}, "")
    except (MotetError, ValueError):
        return False
    return True


def type_name(hint: Any) -> str:
    """Return the words for a type in a recipe; for a choice, the values."""
    origin, inner = get_origin(hint), [a for a in get_args(hint) if a not in (types.NoneType, ...)]
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(map(type_name, inner))
    if origin is tuple:
        return _list_of(inner[0])
    if dataclasses.is_dataclass(hint) and "type" in (f.name for f in dataclasses.fields(hint)):
        return "name or section"
    words = {int: "integer", float: "number", bool: "boolean", str: "text"}
    return words.get(hint, "section")


def _list_of(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"list of {', '.join(f'`{value}`' for value in get_args(hint))}"
    name = type_name(hint).removeprefix("name or ")
    return f"list of {name.replace('list', 'lists', 1) if name.startswith('list') else name + 's'}"


def yaml_value(value: Any) -> str:
    """Return a value as it is written in a recipe."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case "":
            return '""'
        case tuple() | list():
            return f"[{', '.join(map(yaml_value, value))}]"
        case Mapping():
            return "{" + ", ".join(f"{k}: {yaml_value(v)}" for k, v in value.items()) + "}"
    return str(value)


def field_comments(kind: type) -> dict[str, str]:
    """Return the comment beside or inside each field of a dataclass."""
    source = textwrap.dedent(inspect.getsource(kind))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    fields = [node for node in ast.parse(source).body[0].body if isinstance(node, ast.AnnAssign)]  # type: ignore[attr-defined]
    return {
        ast.unparse(node.target): " ".join(comments[n] for n in range(node.lineno, _end(node) + 1) if n in comments)
        for node in fields
    }


def _end(node: ast.AnnAssign) -> int:
    return node.end_lineno or node.lineno


def docstring(kind: Callable[..., Any]) -> str:
    """Return a docstring, but not the signature that dataclasses generate."""
    text = inspect.getdoc(kind) or ""
    return "" if text.startswith(f"{kind.__name__}(") else text


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else ""


def table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a Markdown table."""
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [
        f"| {' | '.join(columns)} |",
        f"| {' | '.join('---' for _ in columns)} |",
        *(f"| {' | '.join(row)} |" for row in escaped),
    ]


def key_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return a table that a phone shows as a list of keys (see site.css)."""
    kind = "keys defaults" if columns[2] == "default" else "keys"
    return [f'<div class="{kind}" markdown>', "", *table(columns, rows), "", "</div>"]
