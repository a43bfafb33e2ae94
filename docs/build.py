"""Build the documentation as a site: python docs/build.py [--to site]. Reference pages are made from the code itself."""

from __future__ import annotations

import argparse
import dataclasses
import html
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "src"))
ORDER = ("index", "tutorial", "papers", "STATUS", "guides", "reference", "design")
HEADS = {"": "Motet", "guides": "Guides", "reference": "Reference", "design": "Design"}


def pages() -> dict[str, str]:
    """Every page as Markdown by its path without ending: those of this folder, and those made from the code."""
    written = {str(p.relative_to(DOCS).with_suffix("")): p.read_text("utf-8") for p in sorted(DOCS.rglob("*.md"))}
    made = {"reference/commands": commands(), "reference/recipes": recipe_keys(), "reference/tables": tables()}
    return dict(sorted({**written, **made}.items(), key=lambda item: (_rank(item[0]), item[0])))


def _rank(path: str) -> int:
    """Single pages first, then folders, each in its order."""
    first = path.partition("/")[0]
    return ORDER.index(first) if first in ORDER else 3  # a single page that is new: after the others


def commands() -> str:
    """Every command with its arguments and options."""
    import typer

    from motet.cli import app

    lines = ["# Commands", "", "`motet --help`, and `motet COMMAND --help`, say the same."]
    for name, command in _all_commands(typer.main.get_command(app)):
        lines += ["", f"## motet {name}", "", (command.help or "").strip(), ""]
        rows = [
            (_usage(p), getattr(p, "help", None) or "")
            for p in command.params
            if not getattr(p, "hidden", False) and p.name != "help"
        ]
        if rows:
            lines += ["| argument | meaning |", "| --- | --- |", *(f"| `{a}` | {said} |" for a, said in rows)]
    return "\n".join(lines) + "\n"


def _all_commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _all_commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _usage(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).upper()
    return ", ".join(parameter.opts) + ("" if parameter.is_flag else " …")


def recipe_keys() -> str:
    """Every section of a recipe, its keys, defaults and what the code says beside them."""
    from motet.experiment.recipe.run_config import RunConfig

    lines = [
        "# Recipes",
        "",
        "A recipe is YAML with these keys; all have defaults. On the command line they are `section.key=value`.",
        "",
    ]
    lines += _fields(RunConfig, "")
    return "\n".join(lines) + "\n"


def _fields(kind: type, before: str) -> list[str]:
    remarks = dict(re.findall(r"^    (\w+): .*?#\s*(.+)$", inspect.getsource(kind), re.M))
    plain, sections = [], []
    for field in dataclasses.fields(kind):
        default = _default(field)
        if dataclasses.is_dataclass(default) and type(default).__name__ not in ("Choice", "Chain"):
            sections += [
                "",
                f"## {before}{field.name}",
                "",
                _sentence(type(default)),
                "",
                *_fields(type(default), f"{before}{field.name}."),
            ]
        elif field.name != "recipe":
            said = default.type if type(default).__name__ == "Choice" else default
            plain.append(
                f"| `{before}{field.name}` | `{said if said not in (None, '') else '–'}` | {remarks.get(field.name, '')} |"
            )
    return (["| key | default | meaning |", "| --- | --- | --- |", *plain] if plain else []) + sections


def _sentence(kind: type) -> str:
    """What a section is for; a dataclass without a docstring has only its own signature to say."""
    said = (inspect.getdoc(kind) or "").split("\n\n")[0]
    return "" if said.startswith(f"{kind.__name__}(") else said


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else ""


def tables() -> str:
    """All there is to choose from, with the options of each entry."""
    from motet.algorithms import ALGORITHMS
    from motet.codecs import CODECS
    from motet.experiment.commands.listings import TABLES, catalogue
    from motet.experiment.recipe.config_parsing import list_parameters
    from motet.partitions import PARTITIONS
    from motet.tasks import TASKS

    makers: dict[str, Any] = {"algorithms": ALGORITHMS, "tasks": TASKS, "partitions": PARTITIONS, "codecs": CODECS}
    lines = ["# What there is to choose from", "", "`motet list algorithms`, and so on, say the same."]
    for what in TABLES:
        lines += ["", f"## {what}", "", "| name | what it is | options |", "| --- | --- | --- |"]
        for name, said in catalogue(what).items():
            maker = makers.get(what, {}).get(name)
            taken = list_parameters(maker) if maker is not None else {}
            options = ", ".join(f"`{n}`" for n in taken if n not in ("corpus", "seed"))
            lines.append(f"| `{name}` | {said.replace('|', '/')} | {options} |")
    return "\n".join(lines) + "\n"


def title_of(text: str, path: str) -> str:
    found = re.search(r"^# (.+)$", text, re.M)
    return found[1] if found else path


def rendered(text: str) -> str:
    """Markdown as HTML; links between pages lead to their HTML."""
    import markdown

    body = markdown.markdown(text, extensions=["tables", "fenced_code", "toc", "sane_lists"])
    body = body.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    return re.sub(r'href="([\w./-]+)\.md(#[\w-]*)?"', r'href="\1.html\2"', body)


def build(to: Path) -> int:
    """Write the site; how many pages it has."""
    found = pages()
    titles = {path: title_of(text, path) for path, text in found.items()}
    style, template = (DOCS / "site" / "site.css").read_text("utf-8"), (DOCS / "site" / "page.html").read_text("utf-8")
    for path, text in found.items():
        up = "../" * path.count("/")
        parts = {
            "title": html.escape(titles[path]),
            "style": style,
            "menu": _menu(titles, path, up),
            "body": rendered(text),
        }
        page = template
        for name, value in parts.items():
            page = page.replace(f"<!--{name}-->", value)
        file = to / f"{path}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, "utf-8")
    return len(found)


def _menu(titles: dict[str, str], here: str, up: str) -> str:
    parts: list[str] = []
    section = None
    for path, title in titles.items():
        folder = path.rpartition("/")[0]
        if folder != section:
            parts.append(f"<h2>{HEADS.get(folder, folder)}</h2>")
            section = folder
        current = ' aria-current="page"' if path == here else ""
        parts.append(f'<a href="{up}{path}.html"{current}>{html.escape(title)}</a>')
    return "\n".join(parts)


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--to", type=Path, default=DOCS.parent / "site")
    target = given.parse_args().to
    print(f"{build(target)} pages in {target}; begin with {target / 'index.html'}")
