"""Every piece of advice in an error works: its recipe keys, commands, options and packages exist."""

from __future__ import annotations

import ast
import dataclasses
import errno
import re
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from motet.algorithms import ALGORITHMS
from motet.cli import app
from motet.codecs import CODECS
from motet.core.install_hint import install_command
from motet.experiment.build.in_process_options import InProcessOptions
from motet.experiment.commands.listings import TABLES
from motet.experiment.commands.recipe_keys import list_keys
from motet.experiment.deploy.audit_log import AuditLog
from motet.experiment.deploy.network_options import MpiOptions, NetworkOptions
from motet.experiment.recipe.config_parsing import list_parameters
from motet.experiment.recipe.key_synonyms import SYNONYMS
from motet.experiment.recipe.run_config import ComponentConfig, RunConfig
from motet.learning.solver import Solver
from motet.optim import SERVER_OPTIMIZERS
from motet.partitions import PARTITIONS
from motet.privacy import PRIVACY
from motet.robust import ROBUST
from motet.secure import SECURE
from motet.tasks import TASKS
from motet.transport.private_files import write_atomically

SOURCE = Path(__file__).parents[2] / "src" / "motet"
PYPROJECT = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
COMMAND = re.compile(
    r"\bmotet ((?!is\b|does\b|on\b|at\b|both\b)[a-z]+)( (?:make|show|figure|build|inspect|schema))?((?: [^\s.,;:()'\"]+)*)"
)
KEY = re.compile(r"(?<![\w./-])([a-z_]+)\.([a-z_]+)(?:\.[a-z_]+)?=")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*[a-z])(?![\w-])")
EXTRA = re.compile(r"install_command\('([\w-]+)'\)|motet\[([\w,-]+)\]")
OTHER_COMMANDS = {"--node-config", "--recurse-submodules", "--user"}


def texts_of_errors() -> Iterator[tuple[str, str]]:
    """Yield the text of each error in the source, with its position. Placeholders become X."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error"):
                text = " ".join(render_text(argument) for argument in node.args)
                if text.strip():
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", text


def render_text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(render_text(value) for value in values)
        case ast.FormattedValue(value=ast.Call(func=ast.Name(id="install_command"), args=[ast.Constant(value=extra)])):
            return f"install_command('{extra}')"
        case ast.FormattedValue():
            return "X"
        case ast.BinOp(left=left, right=right):
            return render_text(left) + render_text(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{render_text(body)} {render_text(other)}"
        case _:
            return ""


def keys_of_recipes() -> set[str]:
    """Return every key `section.option` that some recipe can have."""
    keys = set()
    for field in dataclasses.fields(RunConfig):
        hint = typing.get_type_hints(RunConfig)[field.name]
        kinds = [kind for kind in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(kind)]
        keys |= {f"{field.name}.{f.name}" for kind in kinds for f in dataclasses.fields(kind)}
        keys |= {f"{field.name}.type"} if ComponentConfig in kinds else set()
    factories: dict[str, list[Any]] = {
        "algorithm": list(ALGORITHMS.values()),
        "partition": list(PARTITIONS.values()),
        "secure": list(SECURE.values()),
        "privacy": list(PRIVACY.values()),
        "robust": list(ROBUST.values()),
        "codec": list(CODECS.values()),
        "task": list(TASKS.values()),
        "solver": [Solver],
        "server": list(SERVER_OPTIMIZERS.values()),
        "transport": [NetworkOptions, InProcessOptions, MpiOptions],
    }
    for section, functions in factories.items():
        keys |= {f"{section}.{name}" for function in functions for name in list_parameters(function)}
    options_for_all = {
        "partition.local_test",
        "partition.merge",
        "server.type",
        "transport.address",
        "transport.actors",
    }
    return keys | options_for_all


def command_options() -> dict[str, set[str]]:
    """Return the options of each command of `motet`."""
    group = typer.main.get_command(app)
    commands: dict[str, set[str]] = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        subcommands = getattr(command, "commands", {})
        commands[name] = {option for parameter in command.params for option in parameter.opts}
        for sub, subcommand in subcommands.items():
            commands[f"{name} {sub}"] = {option for parameter in subcommand.params for option in parameter.opts}
    return commands


ERRORS = list(texts_of_errors())
KEYS, COMMANDS = keys_of_recipes(), command_options()
ALL_OPTIONS = set().union(*COMMANDS.values()) | OTHER_COMMANDS


def test_there_are_errors_to_check() -> None:
    assert len(ERRORS) > 300
    assert {"run", "serve", "data inspect"} <= set(COMMANDS)


def test_advised_keys_exist() -> None:
    sections = {key.partition(".")[0] for key in KEYS}
    wrong = [
        f"{where}: {section}.{name}="
        for where, text in ERRORS
        for section, name in KEY.findall(text)
        if section in sections and name not in ("X",) and f"{section}.{name}" not in KEYS
    ]
    assert wrong == []


def test_names_of_other_frameworks_lead_to_keys_that_exist() -> None:
    keys = {*KEYS, *list_keys()}
    assert [key for key in SYNONYMS.values() if key not in keys] == []
    assert set(SYNONYMS) & {field.name for field in dataclasses.fields(RunConfig)} == set()


def test_advised_commands_and_options_exist() -> None:
    wrong = []
    for where, text in ERRORS:
        for name, sub, words in COMMAND.findall(text):
            command = name + sub if name + sub in COMMANDS else name
            options = set(OPTION.findall(words))
            if command not in COMMANDS or not options <= COMMANDS[command]:
                wrong.append(f"{where}: motet {name}{sub}{words}")
        wrong += [f"{where}: {option}" for option in OPTION.findall(text) if option not in ALL_OPTIONS]
    assert wrong == []


def test_advised_extras_exist_and_their_command_names_packages() -> None:
    extras = {e for _, text in ERRORS for pair in EXTRA.findall(text) for e in "".join(pair).split(",")}
    assert {"grpc", "mqtt", "hub"} <= extras <= set(EXTRAS)
    assert all(install_command(extra).startswith("pip install '") for extra in extras)
    assert [text for _, text in ERRORS if re.search(r"(?<!Run: )install_command", text)] == []
    assert "'grpcio>=1.60'" in install_command("grpc")


JOIN = ["join", "--name", "north", "--data", "letters.csv", "--server"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "toy-classification", "task.type=poetry"], "task.type: there is no 'poetry'"),
        (["run", "toy-classification", "device=mps"], "device is 'mps'"),
        (["run", "toy-classification", "device=meta"], "device is 'meta'"),
        (["run", "toy-classification", "--out", "letters.csv/run"], "'letters.csv/run' cannot be read or written"),
        (["run", "toy-classification", "--out", "/proc/none/run"], "'/proc/none' does not exist"),
        (["resume", "served"], "motet serve served/config.yaml --resume --out served"),
        (["run", "toy-classification", "data.name=letters.csv"], "For your own files, use data.path=… instead"),
        (["data", "inspect", "mine.csv"], "'mine.csv' does not exist: there is no 'mine.csv' in"),
        ([*JOIN, "0.0.0.0:8800"], "stands for all addresses of a machine"),
        ([*JOIN, "server.example"], "expected its host and port, such as server.example:8800"),
        ([*JOIN, "server.example:8800"], "is on another machine, and without --ca anyone"),
        (["chat", "classifier"], "is a BertForSequenceClassification, which does not write texts"),
    ],
)
def test_mistakes_are_explained_without_a_traceback(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letters.csv").write_text("text,label\ngood,yes\n")
    (tmp_path / "classifier").mkdir()
    (tmp_path / "classifier" / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "status.json").write_text("{}")
    with pytest.raises(SystemExit) as exit_status:
        app(args=arguments, prog_name="motet", standalone_mode=False)
    assert exit_status.value.code in (1, 2)
    assert message in capsys.readouterr().err


def test_a_full_disk_is_explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from motet.cli.app import handle_errors

    for error in (
        OSError(28, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ):

        @handle_errors
        def write(error: Exception = error) -> None:
            raise error

        with pytest.raises(SystemExit):
            write()
        assert "motet: No space left on device. Check permissions and disk space" in capsys.readouterr().err


def test_the_error_of_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write says only that there is no space. Runs, client states and temporary files may be on several disks."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    log = AuditLog(tmp_path / "audit.jsonl")
    with pytest.raises(OSError, match=r"No space left on device: '.*audit.jsonl'"):
        log.append("joined")
    with pytest.raises(OSError, match=r"No space left on device: '.*/state'"):
        write_atomically(tmp_path / "state", b"weights")
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["audit.jsonl"]


def test_the_help_of_list_names_all_tables() -> None:
    command: Any = typer.main.get_command(app)
    (kind,) = (parameter for parameter in command.commands["list"].params if parameter.name == "kind")
    assert re.findall(r"\w+", kind.help.replace(" or ", " ")) == list(TABLES)
