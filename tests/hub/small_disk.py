"""`python -m tests.hub.small_disk FOLDER`: a daemon with all its state on a disk that fills up.

FOLDER is a small filesystem of its own. Prints what was found, in words.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol import events as ev
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.values import PromptSpec
from engine_daemon.recording.reader import Recording
from tests.daemons import Daemon, Watch, directories, watching

ROOM = 1_000_000
MORE = 100


def fill(file: Path) -> int:
    """To the last byte; how many it took."""
    taken = 0
    with file.open("wb", buffering=0) as out:
        for size in (65536, 1024, 1):
            try:
                while True:
                    taken += out.write(b"f" * size)
            except OSError:
                continue
    return taken


def troubled(watch: Watch) -> str:
    """Why its log cannot be written, as the state tells it."""
    return next((s.trouble for s in watch.client.state.sessions if s.session == watch.session), "")


def stands(watch: Watch, head: int) -> bool:
    """The state tells that it is paused, its log so long."""
    (info,) = watch.client.state.sessions
    return (info.status, info.head) == ("paused", head)


async def run_into_it(watch: Watch, filler: Path) -> None:
    """Until no command is taken any more: the page that the log ends in may have room for some."""
    await watch.until(lambda c: bool(troubled(watch)) or c.stop is not None)
    fill(filler)
    while not troubled(watch):
        known = watch.columns.next
        try:
            await watch.run_to(None)
        except InspectError as error:
            if error.code != "disk_full":
                raise
            return
        await watch.until(
            lambda c, n=known: (  # type: ignore[misc]
                bool(troubled(watch))
                or (c.next > n and c.stop is not None and c.status == "paused")
            )
        )


async def refused(watch: Watch) -> str:
    """What who asks for another step, or for another session, is told; the former."""
    told = []
    for command, session, at in (
        (cmd.RunTo(step=10**6), watch.session, watch.at()),
        (cmd.Open(prompt=PromptSpec(text=b"another")), None, None),
    ):
        with pytest.raises(InspectError) as found:
            await watch.client.command(command, session, at)
        assert found.value.code == "disk_full", found.value
        told.append(str(found.value))
    return told[0]


async def fill_and_free(daemon: Daemon, room: Path) -> str:
    """Run into the full disk, make room, go on; what was found."""
    async with watching(daemon.paths, run_to=None, max_steps=10**6, candidates=68) as watch:
        path = daemon.paths.recordings / f"{watch.session}.lir"
        await run_into_it(watch, room.with_name("rest"))
        trouble = await refused(watch)
        with Recording.open(path) as recording:
            events = list(recording.events())
            assert (recording.state, recording.lost_bytes) == ("open", 0), recording.report()
        await watch.until(lambda c: c.next == len(events) and stands(watch, len(events)))
        assert events == watch.events
        async with DaemonClient(daemon.paths) as late:  # who comes now is told, too
            assert late.state.sessions[0].trouble == troubled(watch)
        room.unlink()
        columns = await watch.until(lambda c: c.stop is not None and not troubled(watch))
        assert columns.stop is not None
        assert columns.stop.reason == "disk_full", columns.stop
        stood = len(columns)
        await watch.run_to(stood + MORE)
        await watch.standing(stood + MORE)
        assert watch.client.state.engine.engine == 1
    daemon.stop()
    with Recording.open(path) as recording:
        last = unpack_event(recording.event(recording.next - 1) or b"")
        assert (recording.state, recording.holes) == ("ok", []), recording.report()
        assert isinstance(last, ev.Closed)
    return f"full after {len(events)} events: {trouble!r}; {MORE} steps more once there was room"


def start_on_a_full_disk(daemon: Daemon, disk: Path) -> str:
    """Not a byte is left: in words, or at work; with room again it starts."""
    filler = disk / "rest again"
    fill(filler)
    try:
        daemon.start()
        told = "it starts"
        daemon.stop()
    except InspectError as error:
        if error.exit_code != Exit.DAEMON:
            raise
        told = str(error)
    filler.unlink()
    daemon.start()
    daemon.stop()
    return f"started on it: {told}"


def main(disk: Path) -> None:
    """Both."""
    with directories() as root:
        (root / "state").symlink_to(disk)
        room = disk / "room"
        room.write_bytes(b"r" * ROOM)
        daemon = Daemon("scripted:rate=1000,context=10000000").start()
        try:
            found = asyncio.run(fill_and_free(daemon, room))
            print(found, start_on_a_full_disk(daemon, disk), sep="; ")
        finally:
            daemon.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
