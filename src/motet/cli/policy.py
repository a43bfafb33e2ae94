"""The commands motet policy and motet audit: what a client agrees to, and what it has done."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import DEPLOYMENT, app, handle_errors
from motet.cli.terminal import echo

policy_app = typer.Typer(no_args_is_help=True, help="Write a policy: what a server may ask of this client.")
audit_app = typer.Typer(help="Verify and print a client's audit log; with privacy, attack a finished run.")
app.add_typer(policy_app, name="policy", rich_help_panel=DEPLOYMENT)
app.add_typer(audit_app, name="audit", rich_help_panel=DEPLOYMENT)


@policy_app.command()
@handle_errors
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new policy file.")] = Path("policy.yaml"),
    model: Annotated[
        list[str] | None, typer.Option(help="Allow this model, with the hash of its files. Repeat it for several.")
    ] = None,
) -> None:
    """Write a strict policy file that explains each line."""
    from motet.core.errors import ConfigError
    from motet.experiment.deploy.policy_file import strict_policy

    if file.exists():
        raise ConfigError(f"'{file}' already exists; delete it, or choose another name.")
    file.write_text(strict_policy(model or ["minilm"]), "utf-8")
    echo(f"Policy: {file}. Read it, change it, and use it with: motet join --policy {file} …")


@audit_app.callback(invoke_without_command=True)
@handle_errors
def audit(
    context: typer.Context,
    state_dir: Annotated[Path, typer.Option(help="The --state-dir of motet join, or one audit log.")] = Path(".motet"),
    head: Annotated[str, typer.Option(help="Fail unless the log contains a line with this hash.")] = "",
) -> None:
    """Verify the audit logs of this machine's clients, and print what servers asked and what was sent."""
    from motet.core.errors import ConfigError
    from motet.experiment.deploy.audit_log import AUDIT_FILE, format_entry, has_torn_line, read_audit_log
    from motet.missing_paths import describe_missing

    if context.invoked_subcommand is not None:
        return
    files = [state_dir] if state_dir.is_file() else sorted(state_dir.rglob(AUDIT_FILE))
    if not state_dir.exists():
        raise ConfigError(f"--state-dir: {describe_missing(state_dir)} Pass the --state-dir of motet join.")
    if not files:
        raise ConfigError(f"there is no audit log in '{state_dir}'; pass the --state-dir of motet join.")
    logs = {file: read_audit_log(file) for file in files}
    if head and not any(str(entry["hash"]).startswith(head) for log in logs.values() for entry in log):
        raise ConfigError(f"no line has the hash {head}; lines were removed, or this is another log.")
    for file, entries in logs.items():
        echo(f"{file}: {len(entries)} lines, the chain of hashes is intact")
        if has_torn_line(file):
            echo("The last line is unfinished: the client writes it now, or was killed then. It does not count.")
        for entry in entries:
            echo(format_entry(entry))
        echo(f"head: {entries[-1]['hash'] if entries else 'none'}")


@audit_app.command("privacy")
@handle_errors
def audit_privacy(
    run: Annotated[Path, typer.Argument(help="Folder of a finished simulation.")],
    limit: Annotated[int, typer.Option(min=20, help="Largest number of training texts, and of others.")] = 2000,
    canaries: Annotated[
        int, typer.Option(min=0, help="Number of clients with known updates, in runs with noise; 0 for none.")
    ] = 500,
    batch: Annotated[int, typer.Option(min=1, help="Texts in the batch whose tokens are read from gradients.")] = 4,
) -> None:
    """Attack a run with membership inference, canaries and tokens from gradients, and compare with the ε that it claims."""
    from motet.experiment.commands.privacy_audit import FIGURE_FILE, format_audit
    from motet.experiment.commands.privacy_audit import audit_privacy as run_audit

    echo(format_audit(run_audit(run, limit, canaries, batch)))
    echo(f"Figure: {run / FIGURE_FILE}")
