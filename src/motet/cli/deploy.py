"""Deployments: serve, join, allow, status."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from motet.cli.app import Recipe, Settings, app, handle_errors

Key = Annotated[Path | None, typer.Option(help="This side's private key (PEM).")]
Cert = Annotated[Path | None, typer.Option(help="This side's certificate (PEM).")]
Token = Annotated[str | None, typer.Option(help="Environment variable or file (with @) that holds the token.")]


@app.command()
@handle_errors
def serve(
    recipe: Recipe = "quickstart",
    settings: Settings = None,
    bind: Annotated[str, typer.Option(help="Where to listen, as host:port.")] = "127.0.0.1:8890",
    transport: Annotated[str, typer.Option(help="grpc or mqtt.")] = "grpc",
    clients: Annotated[int | None, typer.Option(help="So many silos, each with its own data.")] = None,
    allow: Annotated[Path | None, typer.Option(help="Who may join: a file made by motet allow.")] = None,
    key: Key = None,
    cert: Cert = None,
    ca: Annotated[Path | None, typer.Option(help="Clients must show a certificate signed by this one (PEM).")] = None,
    status: Annotated[str | None, typer.Option(help="Show a status page at host:port.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results. Default: runs/<recipe>-<number>.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
) -> None:
    """Run a recipe with clients who join over a network, from this machine or others."""
    from dataclasses import replace

    from rich.console import Console

    from motet.cli.runs import print_results
    from motet.experiment.commands.run_folder import load_config, new_folder
    from motet.experiment.deploy.serve_join import serve as serve_run
    from motet.experiment.recipe.recipe_files import load_recipe
    from motet.report.progress import create_progress

    given = {"bind": bind, "clients": clients, "allow": allow, "key": key, "cert": cert, "ca": ca, "status": status}
    changes = [f"transport.type={transport}", *(f"transport.{n}={v}" for n, v in given.items() if v is not None)]
    config = load_recipe(recipe, [*changes, *(settings or [])])
    folder = out or new_folder(config.recipe)
    if resume:
        config = replace(load_config(folder), transport=config.transport)
    callback = create_progress(Console())
    try:
        finished = serve_run(config, folder, resume=resume, told=typer.echo, callback=callback)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(str(folder)) from None
    print_results(finished)


@app.command()
@handle_errors
def join(
    server: Annotated[str, typer.Option(help="Where the server listens, as host:port.")],
    name: Annotated[
        list[str] | None, typer.Option(help="This client's name; several to play several of a recipe's.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="This client's own texts: any file or folder Motet reads.")] = None,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[data.key=value]...", help="Columns of --data.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Instead of --data: play clients of this recipe.")] = None,
    group: Annotated[str, typer.Option(help="Which of the recipe's groups the data are for, if it has groups.")] = "",
    transport: Annotated[str, typer.Option(help="grpc or mqtt.")] = "grpc",
    token: Token = "MOTET_TOKEN",
    key: Key = None,
    cert: Cert = None,
    ca: Annotated[Path | None, typer.Option(help="The certificate by which the server is known (PEM): TLS.")] = None,
    channel: Annotated[str | None, typer.Option(help="MQTT: the run's topic. Default: motet.")] = None,
    user: Annotated[
        str | None, typer.Option(help="MQTT: the broker's user; password from MOTET_MQTT_PASSWORD.")
    ] = None,
    memory: Annotated[Path, typer.Option(help="Folder for what this client remembers between rounds.")] = Path(
        ".motet"
    ),
    give_up: Annotated[float, typer.Option(help="Seconds to try to reach the server.")] = 600.0,
    only_sums: Annotated[bool, typer.Option("--only-sums", help="Answer only inside secure sums.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:0.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Take part in a run with your own data, which stays where it is."""
    from motet.experiment.deploy.remote_client import JoinOptions, parse_client_data
    from motet.experiment.deploy.serve_join import join as join_run
    from motet.experiment.deploy.serve_join import make_dialer, parse_names
    from motet.experiment.deploy.server import NetworkOptions
    from motet.experiment.recipe.config_parsing import instantiate
    from motet.experiment.recipe.recipe_files import load_recipe

    names = parse_names(name or [])
    config = None if recipe is None else load_recipe(recipe, settings or [])
    own = JoinOptions(
        names,
        parse_client_data(data, settings or []) if data else None,
        config,
        memory / names[0],
        device,
        only_sums,
        group,
    )

    def told(text: str) -> None:
        if not quiet:
            typer.echo(text)

    given = {"key": key, "cert": cert, "ca": ca, "user": user, "channel": channel}
    options = instantiate(NetworkOptions, {n: str(v) for n, v in given.items() if v is not None}, "join")
    why = join_run(own, make_dialer(transport, server, options), _token(token), give_up, told)
    told(why)


@app.command()
@handle_errors
def allow(
    file: Annotated[Path, typer.Argument(help="The list to make or to add to.")],
    names: Annotated[list[str], typer.Argument(help="Clients who may join.")],
) -> None:
    """Let clients join: their tokens are printed once; the file keeps only hashes."""
    import yaml

    from motet.experiment.deploy.server import load_allowed
    from motet.transport.admission import generate_token, hash_token

    allowed = load_allowed(str(file)) if file.exists() else {}
    for name in names:
        token = generate_token()
        allowed[name] = hash_token(token)
        typer.echo(f"{name}: {token}")
    file.write_text(yaml.safe_dump(allowed), "utf-8")


@app.command("status")
@handle_errors
def show_status(
    where: Annotated[str, typer.Argument(metavar="RUN|URL", help="A served run's folder, or the address of its page.")],
) -> None:
    """Where a served run stands: rounds, who is in, who is late, bytes, scores. A page's token: MOTET_STATUS_TOKEN."""
    from motet.report.run_status import format_status, read_status

    typer.echo(format_status(read_status(where, os.environ.get("MOTET_STATUS_TOKEN", ""))))


def _token(where: str | None) -> str:
    if not where:
        return ""
    return Path(where[1:]).read_text("utf-8").strip() if where.startswith("@") else os.environ.get(where, "")
