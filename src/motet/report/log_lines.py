"""Lines of a log that would be repeated while a run waits."""

from __future__ import annotations

import time
from collections.abc import Callable

REPEAT_SECONDS = 60.0


def limit_repeats(
    log: Callable[[str], None], repeat_seconds: float = REPEAT_SECONDS, clock: Callable[[], float] = time.monotonic
) -> Callable[[str], None]:
    """Return a function that logs a line if it differs from the last one, or if that is `repeat_seconds` ago."""
    last_line, last_time = "", 0.0

    def log_change(line: str) -> None:
        nonlocal last_line, last_time
        now = clock()
        if line != last_line or now - last_time >= repeat_seconds:
            last_line, last_time = line, now
            log(line)

    return log_change
