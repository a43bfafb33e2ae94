"""Who belongs to which group is asked at the door, once and for all."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.networks import door, hello

GROUPS = {"letters": "print of letters", "reports": "print of reports"}


def test_a_client_belongs_to_the_group_it_named() -> None:
    met: list[tuple[str, str]] = []
    made = door("north", groups=GROUPS, room=2, known=lambda client, group: met.append((client, group)))
    assert made.refusal(hello("north", group="letters")) is None
    assert made.refusal(hello("south", group="reports")) is None
    made.settle(("north", "south"))
    assert made.refusal(hello("south", group="reports")) is None  # it came back
    made.settle(("south",))
    assert met == [("north", "letters"), ("south", "reports")]
    assert made.print_of("north") == "print of letters"
    assert made.print_of("south") == "print of reports"


@pytest.mark.parametrize(
    ("group", "says"),
    [
        ("", "say which you are: --group letters or --group reports"),
        ("letter", "say which you are"),
        ("reports", "has been in group 'letters' and cannot change to 'reports'"),
    ],
)
def test_a_group_that_is_not_there_or_not_its_own_is_refused(group: str, says: str) -> None:
    made = door("north", groups=GROUPS, members={"north": "letters"})
    assert says in str(made.refusal(hello("north", group=group)))
    assert made.members == {"north": "letters"}


def test_where_all_are_alike_there_is_no_group_to_name() -> None:
    made = door("north")
    assert "leave --group out" in str(made.refusal(hello("north", group="letters")))
    assert made.refusal(hello("north")) is None
    assert made.print_of("north") == "print"


def test_a_group_that_was_mistyped_can_be_put_right_until_the_model_fits() -> None:
    met: list[tuple[str, str]] = []
    made = door(groups=GROUPS, room=1, known=lambda client, group: met.append((client, group)))
    assert made.refusal(hello("north", group="reports")) is None
    assert made.print_of("north") == "print of reports"
    assert met == []  # the client found that its labels are not that group's, and left
    assert made.refusal(hello("north", group="letters")) is None
    assert "none of the clients" in str(made.refusal(hello("south", group="letters")))  # its place is kept
    made.settle(("north",))
    assert met == [("north", "letters")]
    assert "has been in group 'letters'" in str(made.refusal(hello("north", group="reports")))


def test_of_many_who_knock_at_once_no_more_are_let_in_than_there_is_room() -> None:
    class Slow(dict[str, str]):
        def __ior__(self, other: Any) -> Any:
            time.sleep(0.002)  # the others are looked at meanwhile
            return super().__ior__(other)

    made = door(room=3, claimed=Slow())
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda k: made.refusal(hello(f"client-{k}")), range(8)))
    assert answers.count(None) == 3
    assert len(made.claimed) == 3
