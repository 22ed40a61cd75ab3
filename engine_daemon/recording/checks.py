"""Whether the packed columns of an event fit each other, before anybody takes them apart."""

from engine_daemon.protocol.codec import WireError
from engine_daemon.protocol.events import PromptScored, PromptSet
from engine_daemon.protocol.packing import unpack_ints


def check_prompt(prompt: PromptSet) -> None:
    """Raises WireError when they do not."""
    count = len(prompt.ids) // 4
    sizes = {
        "ids": (len(prompt.ids), 4),
        "special": (len(prompt.special), 1),
        "added": (len(prompt.added), 1),
        "starts": (len(prompt.starts), 4),
        "ends": (len(prompt.ends), 4),
        "piece_len": (len(prompt.piece_len), 2),
    }
    wrong = [name for name, (size, item) in sizes.items() if size != count * item]
    if not wrong and sum(unpack_ints("H", prompt.piece_len)) != len(prompt.pieces):
        wrong = ["pieces"]
    if wrong:
        raise WireError("bad_body", f"columns of PromptSet do not fit: {', '.join(wrong)}")


def check_scores(scored: PromptScored) -> None:
    """Raises WireError when they do not."""
    if len(scored.logprobs) != len(scored.ranks) or len(scored.ranks) % 4:
        raise WireError("bad_body", "columns of PromptScored do not fit")
