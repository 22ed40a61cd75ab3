"""Connection files that hold what no daemon writes: named, and in nobody else's way."""

import json
import shutil

from engine_daemon.paths import short_hash
from tests.end_to_end.command import Place

SCRIPTED = ("--engine", "scripted", "--model", "scripted:rate=0")
STRANGE: dict[str, list[object]] = {
    "viewers": ["ipc:///tmp/\0x", "ipc:///" + "x" * 200, "ipc:///\ud800", "tcp://127.0.0.1:1", 7],
    "name": ["other", ""],
    "version": ["\ud800", "\x1b[31m", None],
    "pid": [True, 1, 10**20],
    "started": [float("nan"), float("inf"), -1e300, 1e300, "now"],
}


def test_a_strange_connection_file_is_called_garbled(place: Place) -> None:
    for name in ("other", "strange"):
        place.run("daemon", "start", "--name", name, *SCRIPTED)
    connection = place.root / "run" / short_hash("strange") / "conn.json"
    sound = json.loads(connection.read_text())
    for key, values in STRANGE.items():
        for value in values:
            connection.write_text(json.dumps(sound | {key: value}))
            (listed,) = place.json("daemon", "list", "--json")
            assert listed["name"] == "other", (key, value)
            ended = place.run("sessions", "list", "--name", "strange", code=4)
            assert "cannot be read: it is garbled\n" in ended.err, (key, value)
    connection.write_text(json.dumps(sound))
    place.run("sessions", "list", "--name", "strange")


def test_a_copy_of_a_daemons_folder_is_no_second_daemon(place: Place) -> None:
    place.run("daemon", "start", *SCRIPTED)
    folder = place.root / "run" / "0badcafe"
    folder.mkdir(mode=0o700)
    shutil.copy(place.root / "run" / short_hash("default") / "conn.json", folder)
    assert len(place.json("daemon", "list", "--json")) == 1
