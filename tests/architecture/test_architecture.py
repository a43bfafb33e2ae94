"""Rules for the source tree: who may import whom, how large things may be, what is never done.

See docs/architecture.md.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from motet.experiment.commands.docstring_tables import read_table
from motet.experiment.commands.listings import TABLES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "motet"
FILES = sorted(SOURCE.rglob("*.py"))

# A package may import itself and these. experiment may import all of them, benchmark also experiment, dashboard also
# benchmark, cli and api everything.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "missing_paths": {"core"},
    "atomic_files": {"core"},
    "hub_access": set(),
    "wire": {"core"},
    "optim": {"core"},
    "codecs": {"core"},
    "datasets": {"core", "missing_paths", "atomic_files", "hub_access"},
    "learning": {"core", "wire"},
    "partitions": {"core", "atomic_files", "datasets", "models"},  # models: the sentence encoder of feature shift
    "tasks": {"core", "learning", "datasets"},
    "models": {"core", "missing_paths", "hub_access", "learning"},
    "algorithms": {"core", "learning", "optim"},
    "secure": {"core", "wire", "codecs"},
    "privacy": {"core", "atomic_files", "codecs"},
    "robust": {"core"},
    "transport": {"core", "missing_paths", "atomic_files", "wire", "codecs"},
    "report": {"core", "missing_paths", "transport"},
    "recipes": set(),
    "suites": set(),
}
# The same for the sub-packages and modules of learning. Algorithms use the modules; executors run the jobs.
LEARNING_MAY_IMPORT: dict[str, set[str]] = {
    "lr_schedule": set(),
    "solver": {"lr_schedule"},
    "confusion_matrix": set(),
    "data": set(),
    "modules": {"data"},
    "objectives": {"data"},
    "jobs": {"data", "modules", "objectives", "lr_schedule", "solver"},
    "packed": {"data", "modules", "objectives", "lean_transformers"},
    "training": {"data", "objectives", "lr_schedule", "solver", "jobs", "packed"},
    "executors": {"data", "modules", "jobs", "packed", "training"},
    "reference_columns": {"data", "modules", "objectives", "jobs"},
    "kept_optimizers": {"jobs", "lr_schedule"},
    "lean_transformers": set(),
    "context": {
        *(
            "confusion_matrix",
            "data",
            "modules",
            "objectives",
            "lr_schedule",
            "solver",
            "jobs",
            "reference_columns",
            "kept_optimizers",
        ),
    },
    "evaluation": {"confusion_matrix", "context"},
    "custom_trainer": {"solver", "jobs", "context", "kept_optimizers"},
    "flower_clients": {"custom_trainer"},
    "flower_message_client": set(),
}
# The same for the sub-packages of experiment.
EXPERIMENT_MAY_IMPORT: dict[str, set[str]] = {
    "recipe": set(),
    "build": {"recipe"},
    "loop": {"recipe", "build"},
    "deploy": {"recipe", "build", "loop"},
    "commands": {"recipe", "build", "loop", "deploy"},
}
LONGEST_FILE, LONGEST_FUNCTION = 400, 40
# BaseHTTPRequestHandler: the only way to answer HTTP in the standard library. Formatter: the same for log records.
# H11Protocol: the only place for limits of connections in uvicorn.
PARENTS = {
    "Protocol", "Exception", "NamedTuple", "TypedDict", "dict", "Mapping",
    # what torch, Triton, Python's servers and loggers, and amqtt extend by
    "Module", "Function", "BaseHTTPRequestHandler", "H11Protocol", "Formatter",
    "TopicAccessControlListPlugin", "FileCacheManager",
}  # fmt: skip
CONTRACTS = {
    "Program",
    "Algorithm",
    "Job",
    "Executor",
    "Objective",
    "Readout",
    "Codec",
    "ServerOptimizer",
    "Task",
    "RunCallback",
    "BenchmarkCallback",
}  # Classes that hold the defaults of a contract
# Attributes that a foreign object may lack, so that they are read by getattr or hasattr. Motet's own objects declare theirs.
FOREIGN_ATTRIBUTES = {
    # models, their configurations and outputs
    "_shift_right", "apply_rotary_pos_emb", "base_layer", "base_model_prefix", "cls", "config", "decoder_start_token_id",
    "eps", "generation_config", "get_input_embeddings", "hidden_dropout_prob", "hidden_size", "is_causal",
    "is_encoder_decoder", "layerdrop", "lm_head", "lora_A", "max_position_embeddings", "merge", "model_type",
    "num_virtual_tokens", "offset", "pad_token_id", "peft_config", "pooler_output", "relative_attention_bias", "represent",
    "save_pretrained", "use_cache", "variance_epsilon", "weight",
    # tokenizers and datasets
    "added_tokens_decoder", "backend_tokenizer", "chat_template", "is_fast", "names",
    # Python, numpy, psutil, paho and Flower
    "_is_protocol", "_thread", "item", "numpy_client", "pss", "sched_getaffinity", "strerror",
    # custom trainers and their data
    "count_examples", "fit", "shape",
}  # fmt: skip
TORCH_LAYERS = {"Embedding", "Linear", "LayerNorm"}  # packed layers are subclasses with another forward pass
MEANINGLESS_NAMES = {"found", "said", "told", "made"}  # name the thing instead: matches, message, config
VAGUE_NAMES = re.compile(r"(Manager|Handler|Helper|Utils?$|Base[A-Z]|Wrapper|Factory|Processor)")


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def package(path: Path, root: Path = SOURCE) -> str:
    """Return the package, or the module, directly below `root` that a file belongs to."""
    return path.relative_to(root).parts[0].removesuffix(".py")


def imports(path: Path, prefix: str = "motet.") -> set[str]:
    """Return the packages and modules directly below `prefix` that a file imports."""
    modules: list[str] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return {module.removeprefix(prefix).split(".")[0] for module in modules if module.startswith(prefix)}


def assert_acyclic(allowed: dict[str, set[str]]) -> None:
    def visit(name: str, path: tuple[str, ...] = ()) -> None:
        assert name not in path, f"cycle: {' → '.join((*path, name))}"
        for other in allowed[name]:
            visit(other, (*path, name))

    for name in allowed:
        visit(name)


def list_files(folder: str) -> list[Path]:
    """Return the files of a package of Motet, except its own __init__.py."""
    return [p for p in FILES if package(p) == folder and p != SOURCE / folder / "__init__.py"]


def test_a_package_imports_only_what_it_may() -> None:
    for path in FILES:
        name = package(path)
        assert name not in MAY_IMPORT or imports(path) - {name} <= MAY_IMPORT[name], path


def test_imports_within_learning_go_from_executors_down_to_data() -> None:
    for path in list_files("learning"):
        name = package(path, SOURCE / "learning")
        assert imports(path, "motet.learning.") - {name} <= LEARNING_MAY_IMPORT[name], path


def test_imports_within_experiment_go_from_commands_down_to_recipe() -> None:
    for path in list_files("experiment"):
        name = package(path, SOURCE / "experiment")
        assert imports(path, "motet.experiment.") - {name} <= EXPERIMENT_MAY_IMPORT[name], path


def test_experiment_does_not_import_what_builds_on_it() -> None:
    for path in list_files("experiment"):
        assert not imports(path) & {"benchmark", "dashboard", "cli", "api"}, path


def test_benchmarks_do_not_import_the_dashboard_and_nobody_the_command_line() -> None:
    for path in FILES:
        if package(path) in ("benchmark", "dashboard"):
            assert not imports(path) & {"cli", "api", "dashboard"} - {package(path)}, path.name


@pytest.mark.parametrize(
    "allowed",
    [MAY_IMPORT, LEARNING_MAY_IMPORT, EXPERIMENT_MAY_IMPORT],
    ids=["packages", "learning", "experiment"],
)
def test_allowed_imports_have_no_cycle(allowed: dict[str, set[str]]) -> None:
    assert_acyclic(allowed)


def test_core_is_small_and_does_no_io() -> None:
    core = [p for p in FILES if package(p) == "core"]
    assert sum(len(p.read_text().splitlines()) for p in core) <= 1440
    for path in core:
        assert not re.search(r"\b(open\(|Path|socket|requests|print\()", path.read_text()), path.name


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[Path, Any]]:
    """Yield all nodes of some kinds in the source tree, each with its file."""
    return ((path, node) for path in FILES for node in ast.walk(parse(path)) if isinstance(node, kinds))


def test_files_and_functions_are_small() -> None:
    assert [path for path in FILES if len(path.read_text().splitlines()) > LONGEST_FILE] == []
    functions = [(path, node.name, (node.end_lineno or 0) - node.lineno + 1) for path, node in nodes(ast.FunctionDef)]
    assert [function for function in functions if function[2] > LONGEST_FUNCTION] == []


def test_classes_have_no_parents_and_meaningful_names() -> None:
    for path, node in nodes(ast.ClassDef):
        names = {ast.unparse(b).split("[")[0].split(".")[-1] for b in node.bases}
        assert names <= PARENTS | CONTRACTS | TORCH_LAYERS or all(n.endswith("Error") for n in names), (
            f"{path}: {node.name}({', '.join(names)})"
        )
        assert not VAGUE_NAMES.search(node.name), f"{path}: {node.name}"
    assert not {path.stem for path in FILES} & {"utils", "helpers", "common", "misc"}


def duplicates(places: dict[str, list[Path]]) -> dict[str, list[str]]:
    """Return the names that occur in more than one place."""
    return {name: [str(p.relative_to(SOURCE)) for p in paths] for name, paths in places.items() if len(paths) > 1}


def test_no_two_modules_share_a_name() -> None:
    """Modules of cli may be named after the commands that they define."""
    modules: dict[str, list[Path]] = defaultdict(list)
    for path in FILES:
        if package(path) != "cli" and path.stem not in ("__init__", "__main__"):
            modules[path.stem].append(path)
    assert duplicates(modules) == {}


def test_no_two_public_classes_share_a_name() -> None:
    classes: dict[str, list[Path]] = defaultdict(list)
    for path, node in nodes(ast.ClassDef):
        if not node.name.startswith("_"):
            classes[node.name].append(path)
    assert duplicates(classes) == {}


def assigned_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of all variables, attributes, parameters, functions and classes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def test_names_say_what_a_thing_is() -> None:
    for path in FILES:
        assert not MEANINGLESS_NAMES & set(assigned_names(parse(path))), path


def test_only_foreign_objects_are_read_by_getattr() -> None:
    """What Motet's own classes may declare stands in a Protocol with a default."""
    others = [
        f"{path}: {ast.unparse(node)}"
        for path, node in nodes(ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")
        for name in node.args[1:2]
        if isinstance(name, ast.Constant) and name.value not in FOREIGN_ATTRIBUTES
    ]
    assert others == []


def test_nothing_is_unpickled_and_no_global_state_is_seeded() -> None:
    for path in FILES:
        code = _code(path.read_text())
        assert not re.search(
            r"\bpickle\b(?!d)|torch\.load\(|allow_pickle=True|yaml\.(safe_)?load\(|(?<![.\w])eval\(|(?<![.\w])exec\(",
            code,
        ), path
        assert not re.search(r"np\.random\.seed|random\.seed\(|torch\.manual_seed", code), path


def test_figures_are_drawn_without_pyplot() -> None:
    """pyplot would change the backend and the open figures of the calling program."""
    users = [path.name for path in FILES if "pyplot" in _code(path.read_text())]
    assert users == ["result_plots.py"]  # for notebooks, which show figures with it


def _code(text: str) -> str:
    """Return the text without comments and docstrings."""
    without_docstrings = re.sub(r'""".*?"""', "", text, flags=re.S)
    return re.sub(r"#.*", "", without_docstrings)


def test_every_module_has_a_docstring() -> None:
    for path in FILES:
        assert ast.get_docstring(parse(path)), path


def test_importing_the_package_and_showing_help_load_no_heavy_libraries() -> None:
    heavy = "('torch', 'transformers', 'numpy', 'sklearn', 'yaml')"
    script = f"import sys, motet, motet.cli; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_commands_that_compute_nothing_do_not_import_torch(tmp_path: Path) -> None:
    """They answer in the time that Python needs to start."""
    (tmp_path / "config.yaml").write_text("recipe: toy\nrounds: 3\n")
    commands = [["list", kind] for kind in TABLES] + [["list"], ["status", str(tmp_path)], ["run", "quickstrat"]]
    script = (
        "import sys; from typer.testing import CliRunner; from motet.cli import app\n"
        f"codes = [CliRunner().invoke(app, command).exit_code for command in {commands}]\n"
        "print(codes, [m for m in ('torch', 'transformers', 'sklearn') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == f"{[0] * (len(commands) - 1) + [2]} []"


def test_tables_that_are_read_from_source_files_are_the_imported_ones() -> None:
    from motet.algorithms import ALGORITHMS
    from motet.codecs import CODECS
    from motet.secure import SECURE
    from motet.tasks import TASKS

    for package, name, table in [
        ("motet.algorithms", "ALGORITHMS", ALGORITHMS),
        ("motet.codecs", "CODECS", CODECS),
        ("motet.secure", "SECURE", SECURE),
        ("motet.tasks", "TASKS", TASKS),
    ]:
        docstrings = {name: inspect.getdoc(entry) for name, entry in table.items()}
        assert read_table(package, name) == docstrings


def test_every_public_name_exists() -> None:
    import motet

    assert all(getattr(motet, name) is not None for name in motet.__all__)
    with pytest.raises(AttributeError, match="it has"):
        motet.nothing  # noqa: B018
