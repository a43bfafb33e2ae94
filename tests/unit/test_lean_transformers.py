"""Lean imports: a run imports little, code that needs more gets the real modules, and a lean import may fail.

What is imported is a property of a process. The processes of these tests are forks of one that has imported torch.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKS = """
import os, runpy, sys, traceback
import torch

for script in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        output = os.open(script + ".out", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1), os.dup2(output, 2)
        try:
            runpy.run_path(script)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
"""
BEFORE_MASKS = """
import sys, torch
from motet.learning.lean_transformers import allow_lean_import, import_masking_utils

class BeforeMasks:
    def find_spec(self, name, path, target=None):
        if name == "transformers.masking_utils":
            sys.meta_path.remove(self)
            in_the_middle()

sys.meta_path.insert(0, BeforeMasks())
allow_lean_import()
"""
# `needy` stands for a package that transformers imports, or for the code of a model.
NEEDY = """
import torch._dynamo as compiler, sys
assert "torch._dynamo.utils" not in sys.modules
from torch._dynamo.utils import counters
import torch._dynamo.config
assert compiler.config is torch._dynamo.config and compiler.utils.counters is counters
"""
COMPILER_IS_NEEDED = f"""{BEFORE_MASKS}
def in_the_middle(): import needy
import_masking_utils()
import transformers
from importlib.metadata import packages_distributions
packages = transformers.utils.import_utils.PACKAGE_DISTRIBUTION_MAPPING
assert packages["torch"] == ["torch"] and not packages.read_all.cache_info().currsize, "no other package is read"
assert set(packages) == set(packages_distributions()) and packages.get("yaml") == packages_distributions()["yaml"]
assert packages.get("not_installed") is None and transformers.utils.is_torch_available()
real = sys.modules["torch._dynamo"]
assert torch._dynamo is real and real.__file__ and real.utils.__spec__.origin == real.utils.__file__
from transformers.activations import NewGELUActivation
print(torch.compile(NewGELUActivation(), backend="eager")(torch.zeros(2)).tolist())
"""
IMPORT_FAILS = f"""{BEFORE_MASKS}
import transformers.utils
is_sklearn_available = transformers.utils.is_sklearn_available
def in_the_middle():
    assert transformers.utils.is_sklearn_available is not is_sklearn_available
    raise ImportError("a version that lean imports do not fit")
name = import_masking_utils().__name__
assert transformers.utils.is_sklearn_available is is_sklearn_available
assert sys.modules["torch._dynamo"].__file__
print(name)
"""
UNUSED = ("torch._dynamo.utils", "torch.distributed.tensor", "torchvision", "sympy", "scipy", "sklearn", "pandas")
RUN = f"""
import sys, torch
sys.argv[1:] = "run toy-classification rounds=1 data.limit=30 data.test_limit=10 transport.workers=0".split()
from motet.cli import main
try: main()
except SystemExit as end: print(end.code, [m for m in {UNUSED} if m in sys.modules])
print(torch.distributed.tensor.DTensor.__name__, hasattr(torch.distributed, "nothing"))
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
"""
TEXT_METRICS = f"""
import sys
from motet.learning.lean_transformers import allow_lean_import
allow_lean_import()
from motet.tasks.answer_metrics import rouge_l
print(rouge_l(["two cats sleep"], ["two cats slept"]), [m for m in {UNUSED} if m in sys.modules and m != "scipy"])
from importlib.util import find_spec
print(find_spec("scipy.stats").name, find_spec("sklearn").name)
"""
SCRIPTS = {"run": RUN, "metrics": TEXT_METRICS, "compiler": COMPILER_IS_NEEDED, "failure": IMPORT_FAILS, "needy": NEEDY}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines that each script has printed."""
    folder = tmp_path_factory.mktemp("lean")
    for name, script in SCRIPTS.items():
        (folder / f"{name}.py").write_text(script)
    names = ["run", "metrics", "compiler", "failure"]
    command = [sys.executable, "-c", FORKS, *(f"{name}.py" for name in names)]
    subprocess.run(command, cwd=folder, check=True)
    return {name: (folder / f"{name}.py.out").read_text().splitlines() for name in names}


def test_a_run_imports_only_the_packages_that_it_uses(outputs: dict[str, list[str]]) -> None:
    """Each of these would add tenths of a second to every start. Code that needs the compiler can use it later."""
    # peft reads DTensor without importing it
    assert outputs["run"][-3:] == ["0 []", "DTensor False", "2.0"]


def test_text_metrics_import_neither_sklearn_nor_pandas(outputs: dict[str, list[str]]) -> None:
    assert outputs["metrics"] == ["[0.6666667] []", "scipy.stats sklearn"], "they can be imported later"


def test_code_that_needs_the_compiler_gets_the_real_one(outputs: dict[str, list[str]]) -> None:
    assert outputs["compiler"] == ["[0.0, 0.0]"]


def test_everything_is_imported_as_usual_if_the_lean_import_fails(outputs: dict[str, list[str]]) -> None:
    assert outputs["failure"] == ["transformers.masking_utils"]
