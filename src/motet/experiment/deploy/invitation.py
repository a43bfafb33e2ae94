"""The invitation of a silo: the file that the operator of a server sends to it. It contains the silo's token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from motet.core.errors import ConfigError
from motet.core.script import ClientId
from motet.experiment.recipe.config_parsing import instantiate
from motet.experiment.recipe.yaml_files import read_user_yaml
from motet.transport.addresses import check_peer_address
from motet.transport.admission import is_valid_name
from motet.transport.private_files import open_private_file

HEADER = (
    "# An invitation to a federation. It contains a secret token: send it to {name} alone, and delete it afterward.\n"
)


def check_names(silos: Sequence[ClientId]) -> None:
    """Raise an error if a name cannot name files and clients."""
    for name in silos:
        if not is_valid_name(name) or name.startswith(("-", ".")):
            raise ConfigError(
                f"'{name}' cannot be the name of a silo; expected 1 to 80 letters, digits or any of . _ @ + -, and a letter "
                "or digit first."
            )
    if len(set(silos)) < len(silos):
        raise ConfigError(f"two silos have the same name ({', '.join(silos)}); give each its own.")


@dataclass(frozen=True)
class Invitation:
    """What a silo needs to know of a federation."""

    name: ClientId
    server: str  # host:port
    silos: tuple[ClientId, ...]  # all of them
    model: str
    token: str
    ca: str  # certificate of the authority (PEM)

    def __post_init__(self) -> None:
        check_names(self.silos)
        check_peer_address(self.server, "server")
        if self.name not in self.silos:
            raise ConfigError(f"the invitation is for '{self.name}', who is not among its silos; ask for a new one.")
        if "BEGIN CERTIFICATE" not in self.ca or "PRIVATE KEY" in self.ca:
            raise ConfigError("the invitation has no certificate of an authority; ask for a new one.")

    @property
    def others(self) -> list[ClientId]:
        return [name for name in self.silos if name != self.name]

    def write(self, path: Path) -> None:
        text = yaml.safe_dump({**asdict(self), "silos": list(self.silos)}, sort_keys=False, allow_unicode=True)
        with open_private_file(path) as file:
            file.write((HEADER.format(name=self.name) + text).encode())

    @staticmethod
    def read(path: Path) -> Invitation:
        fields = read_user_yaml(path, "invitation", "Expected the file that the operator of the server sent.")
        if not isinstance(fields, dict):
            raise ConfigError(f"'{path}' is not an invitation; expected the file that the operator of the server sent.")
        return instantiate(Invitation, fields, "invitation")
