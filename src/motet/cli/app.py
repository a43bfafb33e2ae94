"""Shared parts of all commands: the application, error handling, and common arguments."""

from __future__ import annotations

import errno
import functools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from motet.cli.terminal import echo

if TYPE_CHECKING:
    from motet.transport.encrypted_files import EncryptionKey

app = typer.Typer(
    name="motet",
    help="Federated learning for text: train one model on the private texts of many clients, or one model per client.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        import motet

        echo(f"motet {motet.__version__}")
        raise typer.Exit


@app.callback()
def show_global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Federated learning for text: train one model on the private texts of many clients, or one model per client."""


# Panels of the help page
TRAINING, RESULTS, DATA, DEPLOYMENT = "Training", "Results and benchmarks", "Data", "Deployment"

Command = TypeVar("Command", bound=Callable[..., None])
Name = TypeVar("Name", str, Path)  # of a recipe or of a folder

_FILE_ADVICE = "Check permissions and disk space, or use another folder (--out, or --state-dir of a client)."
_USER_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


def handle_errors(command: Command) -> Command:
    """Turn errors that a user can fix into one message on stderr.

    Exit status: 0 success, 1 a run failed, 2 invalid configuration, 130 interrupted.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **options: Any) -> None:
        from motet.core.errors import ConfigError, MotetError

        try:
            command(*args, **options)
        except KeyboardInterrupt as interrupt:
            hint = f" Finished work is saved. Continue with: {interrupt}" if str(interrupt) else ""
            _print_error(f"Interrupted.{hint}")
            sys.exit(130)
        except MotetError as error:
            _print_error(f"motet: {error}")
            sys.exit(2 if isinstance(error, ConfigError) else 1)
        except Exception as error:
            message = _explain_file_error(error)
            if message is None:
                raise  # a bug: show the traceback
            _print_error(f"motet: {message}")
            sys.exit(1)

    return wrapper  # type: ignore[return-value]


def _print_error(text: str) -> None:
    """Print why a command ended: to stderr or, if the log is JSON, as its last line."""
    from motet.report.json_log import is_json_log

    if is_json_log():
        logging.getLogger("motet.cli").error("%s", text)
    else:
        echo(text, err=True)


def _explain_file_error(error: Exception) -> str | None:
    """Return a sentence about a file that cannot be read or written; None for other errors.

    A full disk is often reported without the name of the file, and by some packages without an error number.
    """
    from motet.atomic_files import FULL_DISK

    number, file = (error.errno, error.filename) if isinstance(error, OSError) else (None, None)
    if os.strerror(errno.ENOSPC) in str(error) or number in FULL_DISK:
        return f"{f'{file!r} cannot be written: ' if file else ''}{os.strerror(number or errno.ENOSPC)}. {_FILE_ADVICE}"
    if not isinstance(error, OSError) or file is None or number not in _USER_ERRORS:
        return None
    if number == errno.ENOENT and not os.path.lexists(file):
        from motet.missing_paths import describe_missing

        return describe_missing(file)
    return f"'{file}' cannot be read or written: {error.strerror}. {_FILE_ADVICE}"


DEFAULT_RECIPE = "quickstart"
Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Name of a shipped recipe (see: motet list recipes) or a YAML file.")
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="SECTION.KEY=VALUE", help="Settings that override the recipe, e.g. solver.lr=1e-4."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, e.g. runs/quickstart-1.")]
OutFolder = Annotated[Path | None, typer.Option("--out", help="Output folder.", show_default="runs/RECIPE-NUMBER")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Run Python code that comes with a model. No recipe or server can set this."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Precision = Annotated[
    str, typer.Option(help="auto, float32 or bfloat16. auto: bfloat16 on NVIDIA GPUs that have it, else float32.")
]
CorpusName = Annotated[
    str,
    typer.Argument(metavar="CORPUS", help="Name of a corpus (see: motet list datasets), or your own file or folder."),
]
SourceFolder = Annotated[Path | None, typer.Option("--from", help="Folder with the original files of the corpus.")]
Key = Annotated[Path | None, typer.Option(help="Private key of this side (PEM).")]
Cert = Annotated[Path | None, typer.Option(help="Certificate of this side (PEM).")]
StateKeySource = Annotated[
    str | None,
    typer.Option(
        "--state-key",
        help="Encrypt the client state with this key of 64 hexadecimal digits: an environment variable, or @FILE.",
    ),
]
Transport = Annotated[str, typer.Option(help="grpc, mqtt or flower.")]


def split_settings(first: Name, settings: list[str] | None, default: Name) -> tuple[Name, list[str]]:
    """Return the first argument of a command and the settings. Without it, the first setting is in its position."""
    return (default, [str(first), *(settings or [])]) if "=" in str(first) else (first, settings or [])


def read_secret(source: str) -> str:
    """Return the text of a file, if the source is @FILE, or else of an environment variable; empty if there is none."""
    text = Path(source[1:]).read_text("utf-8") if source.startswith("@") else os.environ.get(source, "")
    return text.strip()


def read_state_key(source: str | None) -> EncryptionKey | None:
    """Return the key that --state-key names, or None without it."""
    from motet.core.errors import ConfigError
    from motet.transport.encrypted_files import EncryptionKey

    if source is None:
        return None
    if not source.startswith("@") and source not in os.environ:
        raise ConfigError(
            f"--state-key names the environment variable {source}, which is not set; for a file, write @FILE."
        )
    return EncryptionKey.parse(read_secret(source))
