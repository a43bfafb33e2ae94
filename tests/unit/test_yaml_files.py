"""YAML that somebody else wrote is read quickly or rejected, whatever it describes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from motet.benchmark.suite import load_suite
from motet.core.errors import ConfigError
from motet.experiment.commands.run_folder import load_config
from motet.experiment.deploy.allow_list import load_allowed
from motet.experiment.deploy.invitation import Invitation
from motet.experiment.deploy.join_policy import JoinPolicy
from motet.experiment.recipe.recipe_files import load_recipe
from motet.experiment.recipe.yaml_files import parse_yaml


def make_bomb() -> str:
    """Return ten lines that describe 10^10 values, in a section that may hold any keys."""
    lines = ["rounds: 1", "model:", "  config:", f"    x0: &x0 {{{', '.join(f'{k}: 1' for k in 'abcdefghij')}}}"]
    lines += [f"    x{i}: &x{i} {{{', '.join(f'{k}: *x{i - 1}' for k in 'abcdefghij')}}}" for i in range(1, 10)]
    return "\n".join(lines)


HOSTILE = {
    "bomb": make_bomb().encode(),
    "cycle": b"model: &m\n  config: *m\n",
    "deep": b"rounds: " + b"[" * 600 + b"]" * 600,  # more than Python's limit of recursion
    "long number": b"rounds: " + b"9" * 5000,
    "no date": b"rounds: 2026-13-45\n",
    "bytes": b"rounds: \xff\xfe\xfd\n",
    "code": b"rounds: !!python/object/apply:os.system ['id']\n",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_rejected_wherever_yaml_is_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(yaml.YAMLError):
        parse_yaml(content)
    for read in (load_recipe, load_suite, load_allowed):
        with pytest.raises(ConfigError, match=r"config.*(is not valid YAML|is not UTF-8 text|cannot be read)"):
            read(str(path))
    for read_path in (JoinPolicy.load, Invitation.read, lambda path: load_config(path.parent)):
        with pytest.raises(ConfigError, match=r"config\.yaml' (cannot be read|is not YAML)"):
            read_path(path)


def test_aliases_and_all_plain_values_are_read_as_usual() -> None:
    text = "base: &base {a: 1, b: [x, 2.5, null, true]}\nother: {<<: *base, a: 2}\n"
    assert parse_yaml(text) == yaml.safe_load(text) == parse_yaml(text.encode("utf-16"))
    assert parse_yaml("") is None
