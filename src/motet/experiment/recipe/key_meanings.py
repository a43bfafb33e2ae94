"""The meaning of each recipe key: the comment beside it in the dataclass that declares it."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize


def read_meanings(kind: type) -> dict[str, str]:
    """Return the comment beside or inside each field of a dataclass, in the words of YAML."""
    source = textwrap.dedent(inspect.getsource(kind))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    (definition,) = ast.parse(source).body
    fields = [node for node in ast.walk(definition) if isinstance(node, ast.AnnAssign)]
    return {
        ast.unparse(node.target): " ".join(
            comments[line] for line in range(node.lineno, (node.end_lineno or node.lineno) + 1) if line in comments
        ).replace("None:", "null:")
        for node in fields
    }
