"""What all commands share: the application, the guard around each command, and the arguments they take alike."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

app = typer.Typer(
    name="motet",
    help="Federated learning for text: many private texts, one model, or one model each.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Command = TypeVar("Command", bound=Callable[..., None])


_RIGHTS_OR_ROOM = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def handle_errors(command: Command) -> Command:
    """A mistake ends in a sentence. Exit status: 0 well, 1 a failed run, 2 a wrong configuration, 130 interrupted."""

    @functools.wraps(command)
    def guarded_command(*args: Any, **options: Any) -> None:
        from motet.core.errors import ConfigError, MotetError

        try:
            command(*args, **options)
        except KeyboardInterrupt as interrupt:
            go_on = f" What was finished is kept; go on with: {interrupt}" if str(interrupt) else ""
            typer.echo(f"Interrupted.{go_on}", err=True)
            sys.exit(130)
        except MotetError as error:
            typer.echo(f"motet: {error}", err=True)
            sys.exit(2 if isinstance(error, ConfigError) else 1)
        except OSError as error:
            if error.filename is None or error.errno not in _RIGHTS_OR_ROOM:
                raise  # a fault of ours: where it happened matters
            what = f"'{error.filename}' cannot be written or read: {error.strerror}"
            typer.echo(f"motet: {what}. Choose another place (--out), or make room or rights there.", err=True)
            sys.exit(1)

    return guarded_command  # type: ignore[return-value]


Recipe = Annotated[str, typer.Argument(help="A shipped recipe's name (see: motet list recipes) or a YAML file.")]
Settings = Annotated[list[str] | None, typer.Argument(metavar="[section.key=value]...", help="Changes to the recipe.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, such as runs/quickstart-1.")]
