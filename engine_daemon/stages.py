"""The stages of having a model, in words: what a worker tells of, as people read it.

Knows names and words.
"""

from typing import Final

_STAGES: Final = {
    "": "starting the engine",
    "import": "importing the engine",
    "look up": "looking it up",
    "download": "downloading the model",
    "check": "checking what was downloaded",
    "convert": "converting the model (once)",
    "wait for another conversion": "waiting for another conversion of it",
    "read header": "reading the file's header",
    "match": "matching the names of the tensors",
    "tokenizer": "making the tokenizer",
    "write": "writing the converted weights",
    "ranks": "bringing the ranks together",
    "load": "loading the weights",
    "verify": "hashing the weights files",
    "checksum": "summing the weights",
    "pack": "laying out the weights",
    "warm up": "warming up",
}


def stage_text(stage: str) -> str:
    """A stage in words; `load 2/4` is the second file of four. What is not known stays as it is."""
    word, _, file = stage.partition(" ")
    if word == "load" and file:
        return f"{_STAGES[word]}, file {file}"
    return _STAGES.get(stage, stage)
