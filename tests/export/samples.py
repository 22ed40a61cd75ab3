"""Recordings that exporters are tried on: whole, branched, hostile, cut and damaged ones."""

from pathlib import Path

from engine_daemon.protocol import events as e
from engine_daemon.protocol.packing import pack_floats, pack_ints
from engine_daemon.protocol.values import Candidates, DroppedBy
from tests.recording.logs import (
    closed,
    commanded,
    engine_started,
    framed,
    opened,
    packed,
    predicted,
    prompt_set,
    sampler_set,
    session,
    session_set,
    stepped,
    stopped,
)

HOSTILE = (
    b"</script><script>alert(1)</script>",
    b"<img src=x onerror=alert(1)>",
    b"\x1b]52;c;aGk=\x07",
    b"\x9b31m",
    b"\xe2\x80\xae",
    b"&lt;$title${data}",
    b"=cmd|' /C calc'!A0",
    b"-1",
    b'a,"b"\r\n\tc',
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xff\xfe",
    b"\x00",
    b"]]>--><!--",
)
"""Pieces of tokens that mean something to a page, a terminal, a spreadsheet or a decoder."""


def candidates(pieces: tuple[bytes, ...]) -> Candidates:
    """These pieces, the more probable the earlier."""
    count = len(pieces)
    return Candidates(
        ids=pack_ints("I", range(65, 65 + count)),
        logit=pack_floats("f", [3.0 - 0.25 * k for k in range(count)]),
        final_logprob=pack_floats("f", [0.0] + [float("-inf")] * (count - 1)),
        dropped_by=bytes([DroppedBy.KEPT] + [DroppedBy.GREEDY] * (count - 1)),
        special=bytes(count),
        piece_len=pack_ints("H", list(map(len, pieces))),
        pieces=b"".join(pieces),
    )


def hostile() -> list[e.Event]:
    """A session whose every text is an attack."""
    log: list[e.Event] = [opened(), commanded("open"), session_set(), sampler_set()]
    log += [prompt_set(HOSTILE), engine_started()]
    for step, piece in enumerate(HOSTILE):
        log += [predicted(step, candidates=candidates(HOSTILE)), stepped(step, piece=piece)]
    log.append(stopped(len(HOSTILE)))
    return [*log, closed(len(log))]


def branched() -> list[e.Event]:
    """A session that left its path at step 1 and stands on the branch."""
    log = session([b"A", b"B", b"C"], close=False)
    log.append(e.Branched(t_ns=1, wall_ns=1, branch=1, step=1, parent=0))
    for step, piece in enumerate((b"X", b"Y"), 1):
        log += [predicted(step, branch=1), stepped(step, branch=1, piece=piece)]
    log.append(stopped(3))
    return log


def noted() -> list[e.Event]:
    """Notes on a step of the path, on the branch that was left, and where nothing is picked."""
    log = branched()
    for branch, step, text in ((0, 0, "good"), (0, 2, "it went wrong"), (1, 1, "<b>why</b>")):
        log.append(
            e.Noted(t_ns=len(log), wall_ns=1, branch=branch, step=step, who="bob", text=text)
        )
    return log


def samples(folder: Path) -> dict[str, Path]:
    """A file each."""
    whole = framed(packed(session([b"A", b"\xe2\x98", b"\x83", b"<eos>"])))
    raw = b"".join(whole)
    broken = bytearray(raw)
    broken[len(b"".join(whole[:8])) + 30] ^= 1
    made = {
        "whole": raw,
        "branched": b"".join(framed(packed(branched()))),
        "hostile": b"".join(framed(packed(hostile()))),
        "opened": b"".join(whole[:1]),
        "open": b"".join(whole[:9]),
        "cut": raw[: len(raw) * 2 // 3],
        "damaged": bytes(broken),
        "beheaded": raw[len(whole[0]) :],
    }
    for name, content in made.items():
        (folder / f"{name}.lir").write_bytes(content)
    return {name: folder / f"{name}.lir" for name in made}
