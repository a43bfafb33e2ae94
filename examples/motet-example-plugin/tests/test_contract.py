"""The components of this package keep Motet's contracts."""

from motet_example_plugin.by_length import by_length
from motet_example_plugin.fedrep_joint import fedrep_joint
from motet_example_plugin.jsonl import open_tracker
from motet_example_plugin.scaffold_damped import scaffold_damped
from motet_example_plugin.signs import signs
from motet_example_plugin.stars import stars, toy_stars

from motet.learning.solver import Solver
from motet.testing import (
    check_algorithm,
    check_codec,
    check_dataset,
    check_partition,
    check_task,
    check_tracker,
    make_federation,
)

SOLVER = Solver(optimizer="sgd", lr=0.2, batch=8, steps=1, schedule="constant")


def test_the_algorithms_keep_the_contract() -> None:
    clients = make_federation(toy_stars(), clients=2, public_share=0.0)
    check_algorithm(scaffold_damped, solver=SOLVER, federation=clients)
    check_algorithm(fedrep_joint, solver=SOLVER, federation=clients, head_epochs=1)


def test_the_other_components_keep_their_contracts() -> None:
    check_dataset(toy_stars)
    check_task(stars, toy_stars())
    check_partition(by_length, toy_stars(), clients=4)
    check_codec(signs)
    check_tracker(open_tracker)
