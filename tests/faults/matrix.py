"""The rows of the fault and load matrix, once: what is done, what must hold, its limit.

A test names its rows with `@pytest.mark.fault("L1")` and hands its figure over with
`record_property("figure", …)`. Limits in time are those for two cores, where the matrix doubles the
ones for four; only the long forms hold them.
"""

from typing import Final, NamedTuple


class Row(NamedTuple):
    """`done`: what happens. `limit`: what must hold, and what the long form measures."""

    done: str
    limit: str


ROWS: Final[dict[str, Row]] = {
    "L1": Row(
        "20 viewers, 1000 events/s, 60 s",
        "all complete; live p99 ≤ 300 ms; engine jitter p99 ≤ one viewer's + 10 ms; hub ≤ 1 core",
    ),
    "L2": Row(
        "a viewer stopped for 5 s under L1",
        "its list complete; the others' p99 within 40 %; hub < +20 MB",
    ),
    "L3": Row(
        "a viewer stopped for ever under L1",
        "dropped by the hub after 6 s; descriptors come back; the others' p99 within 40 %; "
        "hub < +20 MB",
    ),
    "L4": Row(
        "20 late joiners at 100,000 events",
        "image ≤ 1 s; complete ≤ 6 s each; jitter as before",
    ),
    "L5": Row("a viewer that reads one batch a second", "its lag on its own screen; complete"),
    "L6": Row(
        "connect, hello, disconnect 3,000 times",
        "descriptors as before; < +5 MB after the second round",
    ),
    "L8": Row(
        "a context of 100,000 tokens, then steps",
        "key to paint p99 < 200 ms; viewer < 400 MB",
    ),
    "L9": Row(
        "the events of 8 h at 50 a second, 5 viewers",
        "beyond 100 B a step: hub < +8 MB, viewer < +16 MB; hub ≤ 200 MB at 1,000,000 events; "
        "no heartbeat missed",
    ),
    "E1": Row("worker killed in a step", "`dead` ≤ 4 s, then started again; no event lost"),
    "E2": Row("one rank ends", "all end ≤ 10 s, the cause is named; no orphan"),
    "E3": Row(
        "out of memory in a step",
        "`no_memory`; history, worker and daemon live; it goes on there, and on a fresh worker",
    ),
    "E4": Row(
        "worker stopped, or in a loop",
        "`stuck` at its deadline; never killed unasked; pause is accepted ≤ 400 ms",
    ),
    "E5": Row("a flood of 20,000 events/s", "the engine waits, not the viewers; no loss"),
    "D1": Row(
        "daemon killed at 100 random moments", "no step lost that was seen; no silent damage"
    ),
    "D2": Row("daemon killed while importing, loading, running (10 moments)", "no child after 5 s"),
    "D3": Row("daemon started again", "viewers come back by themselves ≤ 6 s; nothing twice"),
    "D5": Row("SIGTERM while loading, running, paused", "exit ≤ 4 s; every log ends with `Closed`"),
    "D6": Row(
        "a second daemon; a file or a link in the way",
        "refused; the first unharmed, file untouched",
    ),
    "R1": Row("disk full", "stops at a step, says so, goes on with space; no torn frame"),
    "R4": Row("a recording cut at every byte", "exactly the whole frames before the cut"),
    "R5": Row("500 bit flips, 300 damaged regions", "no altered event given; holes listed"),
    "R6": Row(
        "read while it is written; copied while it is written",
        "on screen within 400 ms; a sound prefix",
    ),
    "R7": Row(
        "newer, foreign, empty, a folder, 10 GB of nothing",
        "the right word; never a traceback; < 100 MB",
    ),
    "W1": Row(
        "10,000 fuzzed frames, bombs, garbage",
        "a healthy viewer is served throughout; hub < +100 MB; its log stays small",
    ),
    "W2": Row(
        "commands of observers, under old leases, for other epochs, 100 times, out of order",
        "each acts once or not at all",
    ),
    "W5": Row("clients one minor older and newer; another major", "served; refused in words"),
    "W6": Row(
        "keys pressed while the link is lost (30 s)", "none acts afterwards; `not sent` is said"
    ),
    "T1": Row(
        "100 resizes a second for 5 s, 20×5 to 200×60",
        "the last layout is right; tick delay < 600 ms; no crash",
    ),
    "T3": Row(
        "hostile tokens through every screen", "no sequence that plain ones do not bring; no action"
    ),
    "T4": Row("TERM=dumb, no colour, 20×5, no terminal", "clear words or a lesser view"),
    "C1": Row(
        "wall clock ±1 h, and stepping back", "order, leases and rates as they are; no lease lost"
    ),
    "S1": Row("another user of the machine", "cannot connect, read or learn a prompt"),
    "S2": Row("a runtime directory that is not ours alone", "no start; 0711 is set back"),
    "S3": Row("what listens on the network", "nothing but loopback"),
    "S4": Row("sharing by user", "who is listed comes in, as what is listed; else nobody"),
    "S5": Row("an observer commands", "nothing changes"),
    "S6": Row("a controller that was away past its time", "its old commands are `stale`"),
    "S7": Row("messages, recordings, tokens that want to run", "no code runs but the installed"),
    "S8": Row("opening a recording", "loads no model, no network, follows no path"),
    "S9": Row("bytes to the terminal", "come from us alone"),
    "S10": Row("weights as pickle", "refused, not opened"),
    "S11": Row("a checkpoint with code of its own", "refused with the reason"),
    "S12": Row(
        "prompts and secrets",
        "in no argument list, log or file beside a recording; a token in none at all",
    ),
    "S13": Row("a hostile process of the same user", "out of scope, and the documents say so"),
    "S14": Row("memory a peer may take", "bounded"),
}
