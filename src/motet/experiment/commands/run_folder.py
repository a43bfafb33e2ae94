"""The folder of a run: its configuration, metrics, summary, checkpoint and model, and a folder for each baseline."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError, first_line
from motet.experiment.commands.run_format import check_format, write_format
from motet.experiment.commands.run_records import SummaryRecord, update_summary_names
from motet.experiment.recipe.renamed_keys import update_names
from motet.experiment.recipe.run_config import RunConfig
from motet.experiment.recipe.start_folder import find_start_folder
from motet.experiment.recipe.yaml_files import read_yaml
from motet.missing_paths import describe_missing
from motet.transport.folder_lock import LOCK_FILE, find_lock_owner, lock_folder
from motet.transport.json_files import check_json, read_json
from motet.transport.private_files import PRIVATE_FOLDER, create_private_folder, write_atomically

DEFAULT_PARENT = Path("runs")
MAX_LISTED_RUNS = 3


def create_new_folder(recipe: str, parent: Path = DEFAULT_PARENT) -> Path:
    """Create the first folder runs/<recipe>-<number> that does not exist yet, so that no other process gets it."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = parent / f"{recipe}-{number}"
        try:
            folder.mkdir(mode=PRIVATE_FOLDER)
        except FileExistsError:
            number += 1
        else:
            return folder


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Keep a run folder for this process until the block ends. Delete the folder if nothing was written to it."""
    require_no_file(folder)
    created = [path for path in (folder, *folder.parents) if not path.exists() or path == DEFAULT_PARENT]
    try:
        with lock_folder(folder) as is_claimed:
            if not is_claimed:
                owner = find_lock_owner(folder) or "another process"
                raise ConfigError(
                    f"'{folder}' is in use by {owner}; expected a folder that no other process works in. "
                    "Wait until it ends, or choose another --out."
                )
            yield
    finally:
        with suppress(OSError):  # not empty: the run has started
            for path in dict.fromkeys([folder, *created]):
                path.rmdir()


def baseline_folder(folder: Path, name: str) -> Path:
    """Return the folder of a baseline; the run itself has the name ""."""
    return folder / "baselines" / name if name else folder


def require_empty(folder: Path) -> None:
    """Raise an error if the folder has files, so that no run is overwritten."""
    require_no_file(folder)
    if folder.exists() and any(path.name != LOCK_FILE for path in folder.iterdir()):
        resume = f" To continue the run in it: {resume_command(folder)}" if is_started(folder) else ""
        raise ConfigError(f"'{folder}' is not empty; choose a new folder.{resume}")


def require_no_file(folder: Path) -> None:
    """Raise an error if there is a file in place of the folder."""
    if folder.is_file():
        raise ConfigError(f"'{folder}' is a file; expected a folder. Choose another folder.")


def create_run_folder(folder: Path, configs: Mapping[str, RunConfig]) -> None:
    """Create the folders of a run and its baselines, each with a config.yaml."""
    for name, config in reversed(list(configs.items())):  # the run's own last: once it exists, all exist
        path = baseline_folder(folder, name)
        create_private_folder(path)
        text = yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)
        write_format(path)
        write_atomically(path / "config.yaml", text.encode())


def is_started(folder: Path) -> bool:
    """Return True if a run was started in this folder."""
    return (folder / "config.yaml").exists()


def is_finished(folder: Path) -> bool:
    """Return True if the run in this folder has its results."""
    return (folder / "summary.json").exists()


def is_served(folder: Path) -> bool:
    """Return True if `motet serve` runs in this folder, so that it is resumed by a server too."""
    return (folder / "status.json").exists()


def resume_command(folder: Path) -> str:
    """Return the command that continues a run. A server reads the paths of its recipe in the current folder."""
    if not is_served(folder):
        return shlex.join(["motet", "resume", str(folder)])
    start = find_start_folder(folder)
    is_here = start == Path.cwd()
    path = folder if is_here else folder.resolve()
    command = shlex.join(["motet", "serve", str(path / "config.yaml"), "--resume", "--out", str(path)])
    return command if is_here else f"cd {shlex.quote(str(start))} && {command}"


def load_config(folder: Path) -> RunConfig:
    """Load the configuration of a run."""
    path = folder / "config.yaml"
    if not path.is_file():
        problem = f"'{folder}' is not a run: it has no config.yaml." if folder.exists() else describe_missing(folder)
        if runs := [str(run.parent) for run in sorted(folder.glob("*/config.yaml"))[:MAX_LISTED_RUNS]]:
            raise ConfigError(f"{problem} It has runs, such as {', '.join(runs)}. Choose one of them.")
        raise ConfigError(f"{problem} Runs are in runs/<recipe>-<number>, or in the folder that was given as --out.")
    check_format(folder)
    try:
        settings = read_yaml(path)
    except yaml.YAMLError as error:
        raise ConfigError(f"'{path}' is not YAML: {first_line(error)}. Restore the file.") from None
    if not isinstance(settings, dict):
        raise ConfigError(f"'{path}' has no settings; expected sections such as data and model. Restore the file.")
    current = update_names(settings, announce=lambda change: None)  # the user did not write this file
    return RunConfig.from_settings(str(current.pop("recipe", folder.name)), current)


def load_summary(folder: Path) -> dict[str, Any] | None:
    """Load the summary of a run; None if it is not finished."""
    path = folder / "summary.json"
    advice = f"Restore it, or delete it and compute it again: {resume_command(folder)}"
    stored: dict[str, Any] | None = read_json(path, dict[str, Any], advice)
    if stored is None:
        return None
    summary = update_summary_names(stored)
    check_json(summary, path, SummaryRecord, advice)
    return summary
