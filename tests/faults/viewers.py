"""`python -m tests.faults.viewers SESSION COUNT [snapshot|fold]`: that many viewers in one process.

Writes a JSON line when all of them follow. A line `HEAD` on standard input ends it: when each has
everything before that event, one JSON line tells of all of them. `snapshot`: join as a late viewer
does, one after another. `fold`: keep columns, as a screen does.
"""

import asyncio
import json
import os
import sys
import time
from array import array
from dataclasses import dataclass, field

import msgspec

from engine_daemon.client import DaemonClient, LinkLost
from engine_daemon.paths import paths_for
from engine_daemon.protocol import commands as cmd
from engine_daemon.recording.columns import Columns


class Born(msgspec.Struct):
    """When an event was made; the rest of it is skipped."""

    t_ns: int


_BORN = msgspec.msgpack.Decoder(Born)


@dataclass(slots=True)
class Seen:
    """What one viewer got. `late`: seconds from an event's making to its arrival."""

    next: int = 0
    gapless: bool = True
    links_lost: int = 0
    late: "array[float]" = field(default_factory=lambda: array("d"))
    born: "array[float]" = field(default_factory=lambda: array("d"))
    first_s: float = 0.0
    whole_s: float = 0.0
    events: int = 0

    def take(self, batch: cmd.Batch) -> None:
        """Check the numbers."""
        for seq, _ in batch.ev:
            self.gapless = self.gapless and seq == self.next
            self.next = seq + 1
        self.events += len(batch.ev)

    def time(self, batch: cmd.Batch) -> None:
        """Note how late each event is."""
        now = time.monotonic_ns()
        for _, packed in batch.ev:
            made = _BORN.decode(packed).t_ns
            self.born.append(made / 1e9)
            self.late.append((now - made) / 1e9)


async def follow(session: str, seen: Seen, how: str, ready: asyncio.Event, head: list[int]) -> None:
    """One viewer, until it has every event before `head`."""
    columns = Columns()
    began = time.perf_counter()
    async with DaemonClient(paths_for("default"), client="load") as client:
        client.follow(session, snapshot=how == "snapshot")
        ready.set()
        updates = client.updates()
        while not head or seen.next < head[0]:
            try:
                async with asyncio.timeout(0.5):
                    arrived = await anext(updates)
            except TimeoutError:
                updates = client.updates()
                continue
            for update in arrived:
                match update:
                    case cmd.Batch():
                        seen.take(update)
                        if how == "count":
                            seen.time(update)
                        else:
                            columns.extend(update.ev)
                    case cmd.Snapshot():
                        columns = Columns.of(update.columns)
                        seen.next = update.seq
                    case LinkLost():
                        seen.links_lost += 1
                    case _:
                        continue
                seen.first_s = seen.first_s or time.perf_counter() - began
            if how == "snapshot" and seen.next and seen.next >= head_of(client, session):
                break
    seen.whole_s = time.perf_counter() - began


def head_of(client: DaemonClient, session: str) -> int:
    """How long the log was when the daemon last told."""
    return next((s.head for s in client.state.sessions if s.session == session), 1 << 62)


def told(seen: Seen) -> dict[str, object]:
    """What the test wants to know of a viewer."""
    return {
        "next": seen.next,
        "events": seen.events,
        "gapless": seen.gapless,
        "links_lost": seen.links_lost,
        "first_s": seen.first_s,
        "whole_s": seen.whole_s,
        "late": [
            [round(born, 3), round(late, 5)]
            for born, late in zip(seen.born, seen.late, strict=True)
        ],
    }


async def main(session: str, count: int, how: str) -> None:
    """All viewers; `snapshot`: one after another, else side by side."""
    every, head = [Seen() for _ in range(count)], list[int]()
    if how == "snapshot":
        for seen in every:
            await follow(session, seen, how, asyncio.Event(), [1 << 62])
    else:
        followed = [asyncio.Event() for _ in every]
        tasks = [
            asyncio.create_task(follow(session, seen, how, ready, head))
            for seen, ready in zip(every, followed, strict=True)
        ]
        for ready in followed:
            await ready.wait()
        print(json.dumps({"ready": os.getpid()}), flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        head.append(int(line or 0))
        await asyncio.gather(*tasks)
    print(json.dumps([told(seen) for seen in every]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
