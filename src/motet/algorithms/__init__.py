"""All algorithms, by their names in recipes. Each paper has its own module.

To add an algorithm, import its function here: every function that this file imports is an algorithm.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from motet.algorithms.adafd import adafd as adafd
from motet.algorithms.atc import atc as atc
from motet.algorithms.centralized import centralized as centralized
from motet.algorithms.ditto import ditto as ditto
from motet.algorithms.fedavg import fedavg as fedavg
from motet.algorithms.fedavg_st import fedavg_st as fedavg_st
from motet.algorithms.fedbn import fedbn as fedbn
from motet.algorithms.fedbuff import fedbuff as fedbuff
from motet.algorithms.feddyn import feddyn as feddyn
from motet.algorithms.fednova import fednova as fednova
from motet.algorithms.fedopt import fedadagrad as fedadagrad
from motet.algorithms.fedopt import fedadam as fedadam
from motet.algorithms.fedopt import fedopt as fedopt
from motet.algorithms.fedopt import fedyogi as fedyogi
from motet.algorithms.fedprox import fedprox as fedprox
from motet.algorithms.fedrep import fedrep as fedrep
from motet.algorithms.fedsplit import fedsplit as fedsplit
from motet.algorithms.isolated import isolated as isolated
from motet.algorithms.logit_baselines import dsfl as dsfl
from motet.algorithms.logit_baselines import fedavg_logits as fedavg_logits
from motet.algorithms.logit_baselines import fedkd as fedkd
from motet.algorithms.logit_baselines import mhat as mhat
from motet.algorithms.lora.fedex_lora import fedex_lora as fedex_lora
from motet.algorithms.lora.fedit import fedit as fedit
from motet.algorithms.lora.fedsa_lora import fedsa_lora as fedsa_lora
from motet.algorithms.lora.ffa_lora import ffa_lora as ffa_lora
from motet.algorithms.lora.flexlora import flexlora as flexlora
from motet.algorithms.lora.flora import flora as flora
from motet.algorithms.lora.hetlora import hetlora as hetlora
from motet.algorithms.lora.rolora import rolora as rolora
from motet.algorithms.moon import moon as moon
from motet.algorithms.per_fedavg import per_fedavg as per_fedavg
from motet.algorithms.percfl import percfl as percfl
from motet.algorithms.pfedme import pfedme as pfedme
from motet.algorithms.qfedavg import qfedavg as qfedavg
from motet.algorithms.scaffold import scaffold as scaffold
from motet.algorithms.spfl import spfl_like as spfl_like
from motet.core.plugins import Registry
from motet.core.program import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    name: function for name, function in sorted(globals().items()) if inspect.isfunction(function)
}
ALGORITHM_REGISTRY = Registry("motet.algorithms", ALGORITHMS)
