"""Read the names and docstrings of components from the source files, without importing torch with them."""

from __future__ import annotations

import ast
from functools import cache
from importlib import resources


def read_table(package: str, table: str) -> dict[str, str]:
    """Return what a dictionary of functions in a package holds: each name, with the docstring of its function."""
    tree = _parse(package)
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
            if isinstance(node.value, ast.Dict):
                pairs = zip(node.value.keys, node.value.values, strict=True)
                return {
                    ast.literal_eval(key): _read_docstring(package, ast.unparse(value)) for key, value in pairs if key
                }
            return _read_imported_functions(package)
    raise KeyError(f"{package} has no table {table}")


def _read_imported_functions(package: str) -> dict[str, str]:
    """Return the docstrings of all functions that a package imports from its own modules."""
    imports = [node for node in _parse(package).body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports if (node.module or "").startswith(f"{package}.") for alias in node.names]
    return {name: _read_docstring(package, name) for name in sorted(names)}


def _read_docstring(module: str, name: str) -> str:
    """Return the docstring of a function or class that a module defines or imports."""
    for node in _parse(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _read_docstring(node.module, alias.name)
    raise KeyError(f"{module} has no function {name}")


@cache
def _parse(module: str) -> ast.Module:
    package, *parts = module.split(".")
    path = resources.files(package).joinpath(*parts)
    file = path / "__init__.py" if path.is_dir() else path.parent.joinpath(f"{parts[-1]}.py")  # type: ignore[attr-defined]
    return ast.parse(file.read_text("utf-8"))
