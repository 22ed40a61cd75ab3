"""A link that is lost while messages are read, in a process of its own: it would be aborted."""

import subprocess
import sys

import pytest

TRIES = 40
PROGRAM = f"""
import asyncio, tempfile, threading, time
import zmq
from engine_daemon.link import Link
from engine_daemon.protocol.codec import seal
from engine_daemon.protocol.commands import Ping, Pong

class Hub:
    def __init__(self, endpoint):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(endpoint)

    def dies(self):
        self.socket.close()
        self.context.term()

async def lose(number):
    endpoint = f"ipc://{{tempfile.mkdtemp(dir=folder)}}/s"
    hub, seen = Hub(endpoint), 0

    def read(message):
        nonlocal seen
        seen += 1
        if seen == 5 + 3 * number:
            ends.start()
        time.sleep(0.0002)

    link = Link(endpoint, read)
    await link.connected(60)
    link.send(Ping())
    while not hub.socket.poll(0):
        await asyncio.sleep(0.001)
    route = hub.socket.recv_multipart()[0]
    ends = threading.Thread(target=hub.dies)
    for _ in range(700):
        hub.socket.send_multipart([route, *seal(Pong())])
    why = await link.lost(60, 60)
    link.close()
    ends.join()
    return why

with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    for number in range({TRIES}):
        print(asyncio.run(lose(number)), flush=True)
"""


@pytest.mark.fault("L3")
def test_a_link_that_is_lost_in_the_midst_of_a_backlog_aborts_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the daemon is gone"] * TRIES
