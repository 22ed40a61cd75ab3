"""The words on the screen in plain ones: the one table that help and README show.

Knows words only.
"""

from typing import Final

GLOSSARY: Final[tuple[tuple[str, str], ...]] = (
    ("token", "a piece of text, a word or a part of one: what a model reads and writes; its id is"
     " its number in the vocabulary"),
    ("step", "one turn of the loop: forward, pick, append; one token comes of it. Position: how"
     " many tokens are before it, prompt included"),
    ("forward", "the model's pass over the tokens it has not read yet: what a step costs is mostly"
     " this"),
    ("logit", "the model's score for a token to come next; only how far two lie apart says"
     " something"),
    ("probability", "the logits made into shares that add up to 100 % over the vocabulary"
     " (softmax)"),
    ("logprob", "the natural logarithm of a probability: 0 is certain, -0.7 one half, -2.3 a tenth;"
     " those of several tokens add up"),
    ("entropy", "how undecided the model is, in bits: 0 sure, 1 like between two tokens, 5 like"
     " among 32; H where there is little room"),
    ("margin", "the first probability less the second: small is a close call"),
    ("rank", "a token's place by logit: 1 is the most probable. Ranks of a device (cuda×4): the"
     " processes that share the model"),
    ("perplexity", "e to the power of minus the mean logprob: among how many equally probable"
     " tokens a step chose, so to speak"),
    ("greedy", "always pick the most probable token"),
    ("temperature", "divides the logits before a draw: below 1 favours what is probable, above 1"
     " evens out, 0 is greedy"),
    ("top-k", "draw among the k most probable tokens only"),
    ("top-p", "draw among the most probable tokens that together reach p only"),
    ("min-p", "drop tokens less probable than min-p times the most probable one"),
    ("penalties", "repetition, presence, frequency: lower the logits of tokens that were there"
     " already"),
    ("seed", "the number that all draws follow from: the same one draws the same again"),
    ("u", "the number between 0 and 1 that seed and step give a draw; the token in whose interval"
     " of the final probabilities (u … in 0.375-0.500) it lies is drawn"),
    ("prefill", "the first step's forward: it reads the whole prompt"),
    ("decode", "each step after it: with a KV cache its forward reads one token"),
    ("KV cache", "the attention keys and values of the tokens read so far, kept so that no step"
     " reads them again"),
    ("fast engine", "the model's weights laid out, and its layers called, for speed; --plain-engine"
     " has the library's model as it is"),
    ("derived", "computed from what was measured: a fit over the times of steps. Behind ±: its"
     " standard error"),
    ("frozen", "the weights are what was loaded, as of that time; W sums them again"),
    ("head", "where the sequence ends now. Pending: predicted there, and nothing picked yet"),
    ("branch", "another continuation from a step on; nothing is overwritten"),
    ("parked", "cache of a branch that was left, kept so that its way back reads nothing again"),
    ("snapshot", "a copy of a cache that cannot be cut back: going back begins at the nearest one"),
    ("diverged", "read again, the sequence has another token in front than before, which in bf16"
     " happens to two that are close; the one that led is named, with its lead"),
    ("special token", "one that stands for no text, like the end of it (EOS)"),
    ("lease", "the right to command a session: one viewer has it, all may look and pause"),
    ("ROLE", "of a viewer: a controller may take the lease, an observer only watches"),
    ("LAG", "how many events of its sessions a viewer does not have yet"),
)  # fmt: skip
"""Word and meaning, the ones that others build on first."""
