"""Wrapping: incremental equals all at once, nothing is lost, nothing is too wide."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.widgets.flow import Flow, missing_bytes

Tokens = list[tuple[bytes, bool]]
WORDS = st.sampled_from(
    [b" the", b" a", b"ing", b" schedul", b"\n", b".\n\n", b" \xe2\x98", b"\x83", b"\xf0\x9f",
     b"\x98", b"\x80", "世界".encode(), b" ", b"x" * 30, "😀".encode(), b"", b"\xff", b"\x1b["]
)  # fmt: skip
TOKENS = st.lists(st.tuples(WORDS, st.booleans().map(lambda x: x and False)), max_size=40)


def flow_of(tokens: Tokens, width: int) -> Flow:
    flow = Flow(lambda k: tokens[k], width)
    assert flow.lay(len(tokens), len(tokens))
    return flow


def rows(flow: Flow) -> list[str]:
    return ["".join(part for _, part in flow.line(k)) for k in range(flow.lines)]


@given(TOKENS, st.integers(min_value=4, max_value=30))
def test_no_line_is_too_wide_and_no_token_missing(tokens: Tokens, width: int) -> None:
    flow = flow_of(tokens, width)
    for row in rows(flow):
        assert cell_len(row) <= width
    whole = "".join(flow.text(k).replace("\n", "") for k in range(len(tokens)))
    assert "".join(rows(flow)) == whole


@given(TOKENS, st.integers(min_value=8, max_value=30))
def test_growing_token_by_token_shows_the_same_text(tokens: Tokens, width: int) -> None:
    grown: Tokens = []
    flow = Flow(lambda k: grown[k], width)
    for one in tokens:
        grown.append(one)
        while not flow.lay(len(grown), 3):
            pass
        assert all(cell_len(row) <= width for row in rows(flow))
    assert "".join(rows(flow)) == "".join(rows(flow_of(tokens, width)))


@given(TOKENS, st.integers(min_value=4, max_value=30))
def test_a_token_begins_on_its_line(tokens: Tokens, width: int) -> None:
    flow = flow_of(tokens, width)
    for k in range(len(tokens)):
        line = flow.line_of(flow.owner(k))
        if flow.text(flow.owner(k)).strip("\n"):
            assert flow.owner(k) in [token for token, _ in flow.line(line)]


def test_words_stay_whole() -> None:
    flow = flow_of([(b"one", False), (b" two", False), (b" thr", False), (b"ee", False)], 10)
    assert rows(flow) == ["one␣two", "␣three"]


def test_newlines_show_and_break() -> None:
    assert rows(flow_of([(b"a\n\nb", False), (b"c", False)], 10)) == ["a⏎", "⏎", "bc"]


def test_a_glyph_in_two_tokens_is_hex_until_it_is_whole() -> None:
    tokens: Tokens = [(b"x\xf0\x9f", False)]
    flow = Flow(lambda k: tokens[k], 20)
    flow.lay(1, 10)
    assert rows(flow) == ["x<F0 9F>"]
    tokens.append((b"\x98\x80!", False))
    flow.lay(2, 10)
    assert rows(flow) == ["x😀!"]
    assert flow.line(0) == [(0, "x😀"), (1, "!")]


def test_a_glyph_in_four_tokens_belongs_to_the_first() -> None:
    tokens: Tokens = [(bytes([byte]), False) for byte in "😀".encode()]
    flow = flow_of(tokens, 20)
    assert rows(flow) == ["😀"]
    assert [flow.owner(k) for k in range(4)] == [0, 0, 0, 0]


def test_a_broken_glyph_stays_hex() -> None:
    assert rows(flow_of([(b"\xf0\x9f", False), (b"a", False)], 20)) == ["<F0 9F>a"]


def test_specials_are_named_and_never_joined() -> None:
    tokens: Tokens = [(b"\xf0\x9f", False), (b"<|im_end|>", True), (b"\x98\x80", False)]
    assert rows(flow_of(tokens, 40)) == ["<F0 9F><|im_end|><98 80>"]


def test_a_budget_bounds_a_frame() -> None:
    tokens: Tokens = [(b" word", False)] * 1000
    flow = Flow(lambda k: tokens[k], 20)
    assert not flow.lay(1000, 100)
    assert flow.count == 100


def test_missing_bytes() -> None:
    assert missing_bytes(b"abc") == (0, 0)
    assert missing_bytes(b"\xf0\x9f\x98\x80") == (0, 0)
    assert missing_bytes(b"a\xf0") == (1, 3)
    assert missing_bytes(b"a\xf0\x9f\x98") == (3, 1)
    assert missing_bytes(b"\xe2\x98") == (2, 1)
    assert missing_bytes(b"\xc3") == (1, 1)
    assert missing_bytes(b"\x80\x80\x80\x80") == (0, 0)
