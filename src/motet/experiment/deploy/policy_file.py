"""The file that `motet policy init` writes: a strict policy, with an explanation of each line."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from motet.models.model_hash import hash_model

TEMPLATE = """\
# What a server may ask of this client. Motet checks it on this machine, and no server can loosen it.
# Use it with: motet join --policy FILE …
# This file is strict. Change a line to allow more; delete a line to get the default in brackets.

# Secure sums in which this client takes part: secagg, secagg_plus, light_secagg. Add none to send plain updates,
# which the server can read. Texts can be recovered from individual updates.  [secagg, secagg_plus, light_secagg]
protocols: [secagg, light_secagg]

# The keys of all other clients are verified with files on this machine (motet join --identities FOLDER).
# Without this, a malicious server can impersonate all other clients of a sum and read your update.  [true]
identities: true

# The smallest number of clients in a sum. In a sum over two clients, each of them learns the other's value.  [3]
min_clients: 3

# sums: the server reads only sums of replies. each: also allow algorithms that read individual replies.  [sums]
reveals: sums

# Where noise comes from: distributed (all clients inside a secure sum), local (each client), central (the server, which
# you then trust), none, any. distributed and local protect you even from a malicious server.  [any]
noise: {noise}

# The minimum noise: its standard deviation divided by the largest norm of an update (privacy.noise of the recipe).  [0]
min_noise: {min_noise}

# The largest privacy loss of all runs in which this client took part with this --state-dir, at this delta.  [no limit, 1e-5]
max_epsilon: {max_epsilon}
delta: 1.0e-5

# Algorithms (motet list algorithms) and client methods, such as fedavg.train.  [any]
algorithms: [fedavg, fedprox, fedopt, fedadam, fedyogi, fedadagrad]
methods: [any]

# Models by name, with the hash of their files on this machine, or any for a model without files. Nothing is downloaded
# because a server names it. motet policy init --model NAME adds a model with its hash.  [minilm, tiny, bilstm: any]
models:
{models}
# Evaluate the model of a round on your test split, once per round. Never on training texts, never with scores of single
# texts, and not at all in runs with noise.  [true]
evaluation: true

# Report the utility of each training (cohort.oort.report_utility): its number of examples, times the root of the mean of its
# squared losses. The server chooses cohorts by it. It shows how well the model knows your texts.  [false]
report_utility: false

# How often a server may ask: minimum seconds between rounds, and rounds in 24 hours.  [0, no limit]
seconds_between_rounds: 0
rounds_per_day: 200

# Rounds of all runs in which this client took part with this --state-dir. A server that calls a run a new one gets no
# further rounds.  [no limit]
max_rounds: 2000

# Work in one round: tokens of your texts that the model reads, counted in each pass, and tokens that it writes.  [10 billion]
tokens_per_round: 10000000000

# Bytes that may leave this machine in 24 hours.  [no limit]
bytes_per_day: 20000000000

# Join only with --state-key, so that what this client stores between rounds is encrypted.  [false]
encrypted_state: false
"""


DEFAULT_EPSILON = 8.0


def strict_policy(models: Sequence[str], max_epsilon: float | None = DEFAULT_EPSILON) -> str:
    """Return the text of a strict policy file that allows these models, with the hashes of their files.

    Without `max_epsilon`, runs need no noise, and the privacy loss has no limit.
    """
    hashes = {name: hash_model(name) for name in models}
    lines = "".join(f"  {line}\n" for line in yaml.safe_dump(hashes).splitlines())
    if max_epsilon is None:
        return TEMPLATE.format(models=lines, noise="[any]", min_noise=0, max_epsilon="null")
    return TEMPLATE.format(models=lines, noise="[distributed, local]", min_noise=0.5, max_epsilon=f"{max_epsilon:g}")
