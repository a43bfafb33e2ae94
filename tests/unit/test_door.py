"""Who belongs to which group is asked at the door, once and for all."""

from __future__ import annotations

import pytest
from tests.networks import door, hello

GROUPS = {"letters": "print of letters", "reports": "print of reports"}


def test_a_client_belongs_to_the_group_it_named() -> None:
    met: list[tuple[str, str]] = []
    made = door("north", groups=GROUPS, room=2, known=lambda client, group: met.append((client, group)))
    assert made.refusal(hello("north", group="letters")) is None
    assert made.refusal(hello("south", group="reports")) is None
    assert made.refusal(hello("south", group="reports")) is None  # it came back
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
