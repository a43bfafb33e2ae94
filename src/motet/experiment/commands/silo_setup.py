"""`motet init silo`: write everything that a silo needs to join, from the invitation that the server's operator sent."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from motet.core.rng import Seed
from motet.datasets.load_corpus import load_corpus
from motet.experiment.commands.run_folder import require_empty
from motet.experiment.deploy.invitation import Invitation
from motet.experiment.deploy.policy_file import strict_policy
from motet.experiment.deploy.remote_client import parse_client_data
from motet.secure.identities import Identities
from motet.transport.private_files import create_private_folder, open_private_file

Log = Callable[[str], None]
README = """\
# Silo "{name}"

`motet init silo` wrote this folder. Join in it. The same command continues after a restart:

```
{join}
```

| file | what it is | who may see it |
| --- | --- | --- |
| `ca.pem` | certificate that verifies the server | everybody |
| `token` | proves to the server who you are | nobody else |
| `keys/{name}.key` | the key that signs for you in secure sums | nobody else |
| `keys/{name}.pub` | verifies your signatures | send it to {others} |
| `keys/*.pub` | verify the others' signatures. Put their files here | everybody |
| `policy.yaml` | what a server may ask of you. Read it, and change it if you like | you |
| `silo.env` | the options of the command above, for services | you |
| `state/` | what you keep between rounds, and the audit log | nobody else |

- See what servers asked and what was sent: `motet audit --state-dir state`.
- Get your model at the end: `motet export state/{name} --to model`.
"""


@dataclass(frozen=True)
class SiloSetup:
    """What the folder of a silo is made from."""

    folder: Path
    invitation: Invitation
    data: Path
    settings: Sequence[str]  # of the data, such as data.text=body
    max_epsilon: float | None  # None: runs without noise are allowed

    @property
    def join_command(self) -> str:
        server, name = self.invitation.server, self.invitation.name
        identity = ["--server", server, "--ca", "ca.pem", "--name", name, "--token", "@token"]
        files = ["--identities", "keys", "--policy", "policy.yaml", "--state-dir", "state"]
        return shlex.join(["motet", "join", *identity, *files, "--data", str(self.data.resolve()), *self.settings])


def create_silo(setup: SiloSetup, log: Log) -> None:
    """Write the folder of a silo, one step after another. Everything is checked before the first file is written."""
    folder, invitation = setup.folder, setup.invitation
    require_empty(folder)
    corpus = load_corpus(parse_client_data(setup.data, setup.settings), Seed(0))
    policy = strict_policy([invitation.model], setup.max_epsilon)
    create_private_folder(folder)
    (folder / "ca.pem").write_text(invitation.ca)
    with open_private_file(folder / "token") as file:
        file.write(f"{invitation.token}\n".encode())
    log(
        f"1. ca.pem: the certificate that verifies the server {invitation.server}.\n"
        "2. token: proves to the server who you are. Keep it secret, and delete the invitation."
    )
    Identities(str(folder / "keys")).create(invitation.name, os.urandom)
    log(
        f"3. keys/{invitation.name}.key and .pub: your identity in secure sums. The .key never leaves this machine.\n"
        f"4. policy.yaml: what the server may ask. {_describe_policy(setup)}"
    )
    (folder / "policy.yaml").write_text(policy, "utf-8")
    (folder / "silo.env").write_text(_environment(setup), "utf-8")
    others = " and ".join(invitation.others)
    text = README.format(name=invitation.name, join=setup.join_command, others=others)
    (folder / "README.md").write_text(text, "utf-8")
    log(
        f"5. The texts stay where they are: {setup.data.resolve()} has {len(corpus):,} rows.\n"
        "6. silo.env and README.md: the settings for services, the next commands, and what each file is for."
    )


def _describe_policy(setup: SiloSetup) -> str:
    rules = "Only secure sums over at least three verified silos"
    if setup.max_epsilon is None:
        return f"{rules}, without a rule for noise; --max-epsilon 8 would require noise and limit the privacy loss."
    return f"{rules}, with noise, and a privacy loss of at most {setup.max_epsilon:g} over all runs."


def _environment(setup: SiloSetup) -> str:
    """Return the options of the command, for the units and manifests that start it as a service."""
    variables = {
        "MOTET_SERVER": setup.invitation.server,
        "MOTET_NAME": setup.invitation.name,
        "MOTET_DATA": str(setup.data.resolve()),
        "MOTET_DATA_SETTINGS": shlex.join(setup.settings),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
