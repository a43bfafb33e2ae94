"""An emulated network that delivers replies in the order in which they would arrive, for asynchronous simulations."""

from __future__ import annotations

import heapq
from collections import deque

from motet.transport.emulated_transport import EmulatedTransport
from motet.transport.requests import Reply, Request


class AsyncTransport:
    """Lets at most `concurrency` requests be under way on the virtual clock. The others wait until a reply arrives.
    Without a limit, it is the order of the replies that counts: a server that continues with a quorum has the fastest.

    What a client computes does not depend on when it starts. So all requests run together, and only then each gets its
    time. Requests of an evaluation, whose IDs are negative, take no time.
    """

    def __init__(self, emulated: EmulatedTransport, concurrency: int | None = None) -> None:
        self.emulated, self.concurrency = emulated, concurrency
        self.waiting: deque[Request] = deque()  # sent, but not under way yet
        self.replies: dict[int, Reply] = {}  # computed, but not under way yet
        self.under_way: list[tuple[float, int, Reply]] = []  # a heap by the time of arrival
        self.missing = 0  # requests without a computed reply

    def send(self, request: Request) -> None:
        self.missing += 1
        self.emulated.transport.send(request)
        if request.id > 0:
            self.waiting.append(request)

    def receive(self, timeout: float) -> Reply | None:
        while self.missing:
            reply = self.emulated.transport.receive(timeout)
            if reply is None:
                return None
            self.missing -= 1
            if reply.id < 0:
                return reply
            self.replies[reply.id] = reply
        self._start_waiting()
        if not self.under_way:
            return None
        arrival, _, reply = heapq.heappop(self.under_way)
        self.emulated.set_clock(arrival)
        self._start_waiting()
        return reply

    def _start_waiting(self) -> None:
        """Start requests while there is room. A request starts now: when the last reply has arrived."""
        while self.waiting and (self.concurrency is None or len(self.under_way) < self.concurrency):
            request = self.waiting.popleft()
            self.emulated.start(request, self.emulated.seconds)
            reply = self.replies.pop(request.id)
            heapq.heappush(self.under_way, (self.emulated.finish_time(reply), reply.id, reply))

    def close(self) -> None:
        self.emulated.close()
