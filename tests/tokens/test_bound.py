"""`engine_daemon.tokens.bound`: never more than the tokens there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.tokens.tokenizer import Source
from tests.tokens import made
from tests.tokens.test_hf import AWKWARD, NAMES, tokenizer

BOUNDED = {"byte level", "byte level, prefix", "Llama, prepend", "Metaspace, always"}

repeated = st.tuples(st.sampled_from([*AWKWARD, *made.SPECIALS, "the quick"]), st.integers(0, 60))
texts = st.lists(repeated, max_size=4).map(lambda runs: "".join(s * n for s, n in runs))


@pytest.mark.parametrize("name", NAMES)
@given(text=texts)
def test_least_is_a_lower_bound(name: str, text: str) -> None:
    assert tokenizer(name).least(text) <= len(tokenizer(name).tokenise(Source(text)).ids)


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_bound_where_no_text_is_dropped(name: str) -> None:
    bounded = tokenizer(name).least("the quick brown fox " * 1000) > 100
    if name in BOUNDED:
        assert bounded
    if "NFC" in name or "NFKC" in name or name == "no fallback":
        assert not bounded
