"""Settings that runs must share for a fair comparison of methods: the budget, the data, the clients and the model.

A method that trains longer, on more texts or with a larger model can be better for that reason alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

# Other settings, such as learning rates and codecs, belong to a method.
_SHARED_SETTINGS = ("rounds", "solver.epochs", "solver.steps", "cohort.size")
_SHARED_SECTIONS = ("data", "partition", "groups", "task", "model")
_DEFAULT = "default"
MOST_VALUES = 3  # a setting with more values is named without them


def list_unequal_settings(settings: Mapping[str, Mapping[str, str]], *also: str) -> dict[str, str]:
    """Return the settings in which methods with these flat settings are unequal, each with who has which value.

    `also` are further keys that must be equal.
    """
    keys = dict.fromkeys(key for each in settings.values() for key in each)
    unequal = {}
    for key in keys:
        if key in (*_SHARED_SETTINGS, *also) or key.partition(".")[0] in _SHARED_SECTIONS:
            values = {name: each.get(key, _DEFAULT) for name, each in settings.items()}
            if len(set(values.values())) > 1:
                unequal[key] = _describe_values(values)
    return unequal


def _describe_values(values: Mapping[str, str]) -> str:
    """Return `20 for Mine; 5 for the others`, or `20 for Mine; 5 for FedAvg`; empty if there are too many values."""
    counts = Counter(values.values())
    if len(counts) > MOST_VALUES:
        return ""
    usual, count = counts.most_common(1)[0]
    names = {value: [name for name, own in values.items() if own == value] for value in counts}
    if count > 1:
        del names[usual]
        names[usual] = ["the others"]
    return "; ".join(f"{value} for {'; '.join(owners)}" for value, owners in names.items())


def join_settings(unequal: Mapping[str, str]) -> str:
    """Return settings with their values in parentheses, as a list in a sentence."""
    return ", ".join(f"{key} ({values})" if values else key for key, values in unequal.items())
