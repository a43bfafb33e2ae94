"""Old names of command-line options. They work for one more release, with a note that shows the new name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motet.experiment.recipe.renamed_keys import print_rename_once

RENAMED_OPTIONS = {
    "join": {
        "--memory": "--state-dir",
        "--give-up": "--connect-timeout",
        "--only-sums": "--secure-only",
    },
}


def update_options(args: Sequence[str]) -> list[str]:
    """Return the arguments with old option names replaced by the new ones."""
    new_names = RENAMED_OPTIONS.get(args[0], {}) if args else {}
    return [_update_option(arg, new_names) for arg in args]


def _update_option(arg: str, new_names: Mapping[str, str]) -> str:
    name, equals, value = arg.partition("=")
    if name not in new_names:
        return arg
    print_rename_once(f"option '{name}' is now '{new_names[name]}'")
    return f"{new_names[name]}{equals}{value}"
