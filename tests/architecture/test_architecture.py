"""The shape of the code, as drawn in docs/design: who imports whom, how large things are, what is never done."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "motet"
FILES = sorted(SOURCE.rglob("*.py"))

# A package may import itself and these. experiment may import all of them; benchmark stands on it, cli and api on both.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "wire": {"core"},
    "optim": {"core"},
    "codecs": {"core"},
    "datasets": {"core"},
    "learning": {"core", "wire"},
    "partitions": {"core", "datasets", "models"},  # models: the sentence encoder of feature shift
    "tasks": {"core", "learning", "datasets"},
    "models": {"core", "learning"},
    "algorithms": {"core", "learning", "optim"},
    "secure": {"core", "codecs"},
    "privacy": {"core", "codecs"},
    "transport": {"core", "wire", "codecs"},
    "report": {"core", "transport"},
    "recipes": set(),
    "suites": set(),
}
LONGEST_FILE, LONGEST_FUNCTION = 400, 40
# BaseHTTPRequestHandler: the standard library's only way to answer HTTP.
PARENTS = {"Protocol", "Exception", "Module", "NamedTuple", "Function", "BaseHTTPRequestHandler"}
LEAVES = {"Embedding", "Linear", "LayerNorm"}  # layers of torch, whose twin is the same layer with another forward
LITTLE = re.compile(r"(Manager|Handler|Helper|Util|Base[A-Z]|Wrapper|Factory|Processor)")


def package(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("motet."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("motet.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    here = package(path)
    if here in MAY_IMPORT:
        assert imports(ast.parse(path.read_text())) - {here} <= MAY_IMPORT[here]


@pytest.mark.parametrize("path", [p for p in FILES if package(p) == "experiment"], ids=lambda p: p.name)
def test_a_run_knows_nothing_of_benchmarks(path: Path) -> None:
    assert not imports(ast.parse(path.read_text())) & {"benchmark", "cli", "api"}


def test_the_picture_has_no_cycle() -> None:
    def above(name: str, seen: tuple[str, ...] = ()) -> None:
        assert name not in seen, f"cycle: {' → '.join((*seen, name))}"
        for other in MAY_IMPORT[name]:
            above(other, (*seen, name))

    for name in MAY_IMPORT:
        above(name)


def test_the_kernel_is_small_and_does_no_input_or_output() -> None:
    core = [p for p in FILES if package(p) == "core"]
    assert sum(len(p.read_text().splitlines()) for p in core) <= 1000
    for path in core:
        assert not re.search(r"\b(open\(|Path|socket|requests|print\()", path.read_text()), path.name


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_and_functions_are_small(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_classes_have_no_parents_and_names_that_say_something(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            names = {ast.unparse(b).split("[")[0].split(".")[-1] for b in node.bases}
            assert names <= PARENTS | LEAVES or all(n.endswith("Error") for n in names), (
                f"{node.name}({', '.join(names)})"
            )
            assert not LITTLE.search(node.name), node.name
    assert path.stem not in ("utils", "helpers", "common", "misc")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_is_unpickled_and_nothing_seeds_global_state(path: Path) -> None:
    text = path.read_text()
    assert not re.search(
        r"\bpickle\b(?!d)|torch\.load\(|allow_pickle=True|yaml\.load\(|(?<![.\w])eval\(|(?<![.\w])exec\(", _code(text)
    )
    assert not re.search(r"np\.random\.seed|random\.seed\(|torch\.manual_seed", _code(text))


def _code(text: str) -> str:
    """Without comments and docstrings."""
    without = re.sub(r'""".*?"""', "", text, flags=re.S)
    return re.sub(r"#.*", "", without)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "a sentence at the top"


def test_importing_the_package_or_asking_for_help_loads_nothing_heavy() -> None:
    heavy = "('torch', 'transformers', 'numpy', 'sklearn', 'yaml')"
    script = f"import sys, motet, motet.cli; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    import motet

    assert all(getattr(motet, name) is not None for name in motet.__all__)
    with pytest.raises(AttributeError, match="it has"):
        motet.nothing  # noqa: B018
