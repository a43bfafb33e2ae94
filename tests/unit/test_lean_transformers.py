"""Lean imports: code that needs a postponed module gets the real one, and a lean import that fails is made up for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

START = """
import sys
from motet.learning.lean_transformers import allow_lean_import, import_masking_utils

class BeforeMasks:
    def find_spec(self, name, path, target=None):
        if name == "transformers.masking_utils":
            sys.meta_path.remove(self)
            run()

sys.meta_path.insert(0, BeforeMasks())
allow_lean_import()
"""


def run_script(script: str, folder: Path) -> str:
    """Run a script whose function `run` is called in the middle of a lean import."""
    command = [sys.executable, "-c", START + script]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_code_that_needs_the_compiler_gets_the_real_one(tmp_path: Path) -> None:
    """`needy` stands for a package that transformers imports, or for the code of a model."""
    (tmp_path / "needy.py").write_text(
        "import torch._dynamo as compiler, sys\n"
        "assert 'torch._dynamo.utils' not in sys.modules\n"
        "from torch._dynamo.utils import counters\n"
        "import torch._dynamo.config\n"
        "assert compiler.config is torch._dynamo.config and compiler.utils.counters is counters\n"
    )
    script = """
def run(): import needy
import_masking_utils()
import torch, transformers
from importlib.metadata import packages_distributions
packages = transformers.utils.import_utils.PACKAGE_DISTRIBUTION_MAPPING
assert packages["torch"] == ["torch"] and not packages.read_all.cache_info().currsize, "no other package is read"
assert set(packages) == set(packages_distributions()) and packages.get("yaml") == packages_distributions()["yaml"]
assert packages.get("not_installed") is None and transformers.utils.is_torch_available()
real = sys.modules["torch._dynamo"]
assert torch._dynamo is real and real.__file__ and real.utils.__spec__.origin == real.utils.__file__
sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9)
model = torch.compile(transformers.BertModel(transformers.BertConfig(**sizes)), backend="eager")
print(tuple(model(torch.ones(1, 3, dtype=torch.long)).last_hidden_state.shape))
"""
    assert run_script(script, tmp_path) == "(1, 3, 8)"


def test_everything_is_imported_as_usual_if_the_lean_import_fails(tmp_path: Path) -> None:
    script = """
import transformers.utils
is_sklearn_available = transformers.utils.is_sklearn_available
def run():
    assert transformers.utils.is_sklearn_available is not is_sklearn_available
    raise ImportError("a version that lean imports do not fit")
name = import_masking_utils().__name__
assert transformers.utils.is_sklearn_available is is_sklearn_available
assert sys.modules["torch._dynamo"].__file__
print(name)
"""
    assert run_script(script, tmp_path) == "transformers.masking_utils"
