"""`motet init server`: write everything that a server needs, and an invitation for each silo."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from motet.core.errors import ConfigError
from motet.core.rng import Seed
from motet.core.script import ClientId
from motet.datasets.corpus import Corpus
from motet.datasets.load_corpus import load_corpus
from motet.experiment.commands.run_folder import require_empty
from motet.experiment.commands.silo_invitations import write_invitations
from motet.experiment.deploy.allow_list import add_clients
from motet.experiment.deploy.certificates import create_certificates
from motet.experiment.deploy.invitation import check_names
from motet.experiment.recipe.recipe_files import build_recipe, merge_settings
from motet.experiment.recipe.run_config import RunConfig
from motet.missing_paths import describe_missing
from motet.transport.private_files import create_private_folder

Log = Callable[[str], None]
SMALLEST_SUM = 3  # in a sum over two clients, each of them learns the other's value
PROTOCOLS = ("secagg", "light_secagg")  # that the policy of motet init silo allows
DEFAULT_RECIPE: Mapping[str, Any] = {
    "rounds": 20,
    "model": {"name": "minilm", "max_tokens": 128},
    "algorithm": {"type": "fedavg"},
    "secure": {"type": "secagg"},
    "wait_policy": {"reconnect_timeout": 600.0},
}
README = """\
# Server of the federation "{name}"

`motet init server` wrote this folder. Start the server in it. The same command resumes the run after a restart:

```
{serve}
```

| file | what it is | who may see it |
| --- | --- | --- |
| `recipe.yaml` | what is trained, and how | everybody; silos get it without file names |
| `{data}` | texts with all labels: the global test set | the server |
| `ca.pem` | certificate of the authority | everybody; it is in the invitations |
| `ca.key` | signs new certificates. Keep it offline | nobody else |
| `server.pem` | certificate of the server, valid until {expires:%Y-%m-%d} | everybody |
| `server.key` | its private key | nobody else |
| `allowed.yaml` | hashes of the silos' tokens | nobody else |
| `silos/NAME.yaml` | invitation of a silo, with its token. Delete it when it was sent | that silo |
| `runs/` | the run: checkpoint, scores, model | the server |

The silos are {silos}. All of them must be connected before the first round.

- See how the run is going: `motet status runs/{name}`, or `motet dashboard runs`.
- Invite another silo: `motet init invitation . --silo NAME`. It takes part when the server is started again.
- Replace or withdraw the token of a silo: `motet allow allowed.yaml NAME --rotate` or `--revoke`.
- Renew the certificate: `motet certificate . {hosts} --rotate`. A running server uses it for new connections.
- Get the model at the end: `motet export runs/{name} --to model`.
"""


@dataclass(frozen=True)
class ServerSetup:
    """What a server's folder is made from."""

    folder: Path
    hosts: Sequence[str]  # the first is in the invitations
    port: int
    silos: Sequence[ClientId]
    data: Path
    settings: Mapping[str, Any]  # of the recipe

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def serve_command(self) -> str:
        return shlex.join(["motet", "serve", "recipe.yaml", "--out", f"runs/{self.name}", "--auto-resume"])


def create_server(setup: ServerSetup, log: Log) -> None:
    """Write the folder of a server, one step after another. Everything is checked before the first file is written."""
    require_empty(setup.folder)
    check_names(setup.silos)
    if len(setup.silos) < SMALLEST_SUM:
        raise ConfigError(
            f"{len(setup.silos)} silos are given ({', '.join(setup.silos)}); a secure sum needs at least {SMALLEST_SUM}. "
            "Repeat --silo NAME."
        )
    if not setup.data.exists():
        raise ConfigError(f"--data: {describe_missing(setup.data)} Expected texts with all labels.")
    settings = _build_settings(setup)
    config = build_recipe(settings, {"data": {"path": str(setup.data)}})
    if config.secure.type not in PROTOCOLS:
        raise ConfigError(
            f"secure.type is {config.secure.type}; motet init silo writes policies that allow {' and '.join(PROTOCOLS)}. "
            "Leave it out, or write the files by hand (see the guide on deployment)."
        )
    corpus = load_corpus(config.data, Seed(config.seed), config.task.chosen_type)
    create_private_folder(setup.folder)
    _write_recipe(setup, settings, config, corpus, log)
    expires = create_certificates(setup.folder, setup.hosts)
    log(
        "3. ca.pem and ca.key: an authority of your own. Move ca.key to a safe place; only new certificates need it.\n"
        f"4. server.pem and server.key: a certificate for {', '.join(setup.hosts)}, valid until {expires:%Y-%m-%d}."
    )
    _write_invitations(setup, config, log)
    text = README.format(
        name=setup.name,
        serve=setup.serve_command,
        data=setup.data.name,
        expires=expires,
        silos=", ".join(setup.silos),
        hosts=" ".join(setup.hosts),
    )
    (setup.folder / "README.md").write_text(text, "utf-8")
    log("7. README.md: the next commands, and what each file is for.")


def _build_settings(setup: ServerSetup) -> dict[str, Any]:
    transport = {
        "type": "grpc",
        "bind": f"0.0.0.0:{setup.port}",
        "key": "server.key",
        "cert": "server.pem",
        "allow": "allowed.yaml",
    }
    given: Any = setup.settings.get("data") or {}
    settings = {**DEFAULT_RECIPE, "transport": transport}
    return merge_settings({**settings, "data": {"path": setup.data.name}}, {**setup.settings, "data": given})


def _write_recipe(setup: ServerSetup, settings: Mapping[str, Any], config: RunConfig, corpus: Corpus, log: Log) -> None:
    text = yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True)
    (setup.folder / "recipe.yaml").write_text(
        f"# The run of {setup.name}. File names are relative to this folder.\n{text}"
    )
    log(
        f"1. recipe.yaml: {config.algorithm.type} trains {config.model.name} for {config.rounds} rounds, and the server sees "
        f"only sums over {len(setup.silos)} silos ({config.secure.type}). Change it before the first start if you like."
    )
    copy = shutil.copytree if setup.data.is_dir() else shutil.copy2
    copy(setup.data, setup.folder / setup.data.name)
    labels = f" with the labels {', '.join(corpus.labels[:10])}" if "label" in corpus.columns else ""
    log(f"2. {setup.data.name}: {len(corpus):,} rows{labels}. They are the global test set; nobody trains on them.")


def _write_invitations(setup: ServerSetup, config: RunConfig, log: Log) -> None:
    host = f"[{setup.hosts[0]}]" if ":" in setup.hosts[0] else setup.hosts[0]
    tokens = add_clients(setup.folder / "allowed.yaml", setup.silos)
    log("5. allowed.yaml: one token for each silo. The file has only hashes of them.")
    write_invitations(setup.folder, f"{host}:{setup.port}", config.model.name, setup.silos, tokens)
    log(f"6. silos: an invitation for each of {', '.join(setup.silos)}, with its token and the address of the server.")
