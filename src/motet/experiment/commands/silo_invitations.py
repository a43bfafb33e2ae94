"""`motet init invitation`: invite more silos to a server that `motet init server` set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.experiment.deploy.allow_list import add_clients, load_allowed
from motet.experiment.deploy.certificates import read_host_names
from motet.experiment.deploy.client_listener import public_address
from motet.experiment.deploy.invitation import Invitation, check_names
from motet.experiment.deploy.network_options import NetworkOptions
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.recipe_files import load_recipe
from motet.missing_paths import describe_missing
from motet.transport.private_files import create_private_folder


def invite_silos(folder: Path, names: Sequence[ClientId]) -> None:
    """Create tokens for more silos, and write an invitation for each. Everything is checked before the first change."""
    for name in ("recipe.yaml", "ca.pem"):
        if not (folder / name).exists():
            raise ConfigError(f"{describe_missing(folder / name)} Expected a folder that motet init server wrote.")
    config = load_recipe(str(folder / "recipe.yaml"))
    options = instantiate(NetworkOptions, config.transport.options, "transport")
    hosts = read_host_names(folder / options.cert) if options.cert else []
    if config.transport.type != "grpc" or options.allow is None or not hosts:
        raise ConfigError(
            f"'{folder / 'recipe.yaml'}' serves over {config.transport.type} with transport.allow={options.allow} and "
            f"transport.cert={options.cert}; an invitation needs gRPC, a list of clients, and a certificate with a host "
            "name. Invite the silo by hand (see the guide on deployment)."
        )
    allowed = folder / options.allow
    silos = list(dict.fromkeys([*load_allowed(str(allowed)), *names]))
    check_names(silos)
    tokens = add_clients(allowed, names)
    write_invitations(folder, public_address(options.bind, hosts), config.model.name, silos, tokens)


def write_invitations(
    folder: Path, server: str, model: str, silos: Sequence[ClientId], tokens: Mapping[ClientId, str]
) -> None:
    """Write an invitation for each silo that has a new token. `silos` are all silos of the server."""
    create_private_folder(folder / "silos")
    for name, token in tokens.items():
        invitation = Invitation(
            name=name, server=server, silos=tuple(silos), model=model, token=token, ca=(folder / "ca.pem").read_text()
        )
        invitation.write(folder / "silos" / f"{name}.yaml")
