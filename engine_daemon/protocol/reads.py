"""Reads: what viewers may ask without changing anything. Never logged, never delay a step.

Knows no sockets; the messages around them are in `commands`.
"""

import msgspec

from engine_daemon.protocol.values import PromptSpec, Sampler


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag_field="what", omit_defaults=True):
    """Base of reads: never logged, never delay a step."""


class AskEvents(Ask, frozen=True, kw_only=True, tag="events"):
    """The bytes of these events of the session."""

    seqs: list[int]


class AskEncode(Ask, frozen=True, kw_only=True, tag="encode"):
    """Tokenise without opening anything; needs no session."""

    prompt: PromptSpec


class AskStacks(Ask, frozen=True, kw_only=True, tag="stacks"):
    """Python stacks of the worker."""


class AskToken(Ask, frozen=True, kw_only=True, tag="token"):
    """What these ids had at a step: from its kept row, however far down they were.

    Here and below: `branch` None is the one the session stands on, `step` None the pending step.
    Answered `gone` when the row is not kept any more.
    """

    ids: list[int]
    step: int | None = None
    branch: int | None = None


class AskWhatIf(Ask, frozen=True, kw_only=True, tag="whatif"):
    """A step's distribution under another sampler, and what it would pick."""

    sampler: Sampler
    step: int | None = None
    branch: int | None = None


class AskPreview(Ask, frozen=True, kw_only=True, tag="preview"):
    """The pending distribution under a sampler that is being set."""

    sampler: Sampler


class AskReroll(Ask, frozen=True, kw_only=True, tag="reroll"):
    """Draw a step `n` times with salts nobody uses: how often each token comes."""

    n: int
    step: int | None = None
    branch: int | None = None


class AskCondition(Ask, frozen=True, kw_only=True, tag="condition"):
    """Whether a condition can be used with this model's tokens; the answer says why not."""

    source: str


AnyAsk = (
    AskEvents | AskEncode | AskStacks | AskToken | AskWhatIf | AskPreview | AskReroll | AskCondition
)
