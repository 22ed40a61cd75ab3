"""Reads on kept rows: any token, another sampler, many draws. No forward, nothing changes.

Works on any backend's distribution; knows no sockets.
"""

import math
from collections import Counter
from typing import Final, Protocol, runtime_checkable

from engine_daemon.errors import InspectError
from engine_daemon.protocol.packing import unpack_ints
from engine_daemon.protocol.pieces import PieceTable
from engine_daemon.protocol.values import StepFigures, TokenFigure
from engine_daemon.protocol.worker import AskRow, RowAnswer
from engine_daemon.worker.backends.base import Choice, Evaluation
from engine_daemon.worker.decode import DecodeSession
from engine_daemon.worker.engine import Engine
from engine_daemon.worker.kept_rows import PathKey
from engine_daemon.worker.outcomes import draw, named

_MOST_TOLD: Final = 256
"""Different tokens that a count of draws lists, the frequent ones first."""


@runtime_checkable
class DrawsMany(Protocol):
    """An evaluation that finds the tokens of many draws faster than one by one."""

    def picks(self, us: list[float]) -> list[int]:
        """The id that each `u` falls on."""
        ...


def gone(ask: AskRow) -> RowAnswer:
    """The row is not held any more."""
    message = "the row of this step is not held any more; recompute it"
    return RowAnswer(ask=ask.ask, code="gone", message=message)


def read_row(engine: Engine, session: DecodeSession, ask: AskRow) -> RowAnswer:
    """The answer; InspectError when an id is out of the vocabulary."""
    ids = unpack_ints("I", ask.ids)
    path = session.prompt + ids
    row = engine.rows.get(PathKey(session.id, path).key)
    if row is None:
        return gone(ask)
    evaluation = row.evaluate(ask.sampler, path)
    if ask.tokens is not None:
        for token_id in ask.tokens:
            if not session.knows(token_id):
                raise InspectError(f"no token has id {token_id}", code="bad_arg")
        tokens = [_figure(evaluation, engine.table, i) for i in ask.tokens]
        return RowAnswer(ask=ask.ask, tokens=tokens)
    if ask.n is not None:
        return RowAnswer(ask=ask.ask, tokens=_reroll(evaluation, engine.table, ask, len(ids)))
    report = evaluation.report(session.candidates)
    choice = evaluation.pick(draw(ask.sampler.seed, ask.salt, len(ids)))
    figures = StepFigures(
        candidates=named(report, engine.table),
        ties_cut=report.ties_cut,
        entropy_bits=report.entropy_bits,
        logsumexp=report.logsumexp,
        margin=report.margin,
        tail_prob=report.tail_prob,
        picked=_told(choice, report.logsumexp, engine.table),
        draw=choice.draw,
    )
    return RowAnswer(ask=ask.ask, figures=figures)


def _reroll(evaluation: Evaluation, table: PieceTable, ask: AskRow, step: int) -> list[TokenFigure]:
    us = [draw(ask.sampler.seed, ask.salt + i, step) for i in range(ask.n or 0)]
    if isinstance(evaluation, DrawsMany):
        picked = evaluation.picks(us)
    else:
        picked = [evaluation.pick(u).id for u in us]
    counts = sorted(Counter(picked).items(), key=lambda item: (-item[1], item[0]))
    return [_figure(evaluation, table, i, count) for i, count in counts[:_MOST_TOLD]]


def _figure(
    evaluation: Evaluation, table: PieceTable, token_id: int, count: int | None = None
) -> TokenFigure:
    return _told(evaluation.forced(token_id), evaluation.report(1).logsumexp, table, count)


def _told(
    choice: Choice, logsumexp: float, table: PieceTable, count: int | None = None
) -> TokenFigure:
    masked = choice.logit == -math.inf
    return TokenFigure(
        id=choice.id,
        piece=table.piece(choice.id),
        special=table.is_special(choice.id),
        logit=choice.logit,
        logprob=-math.inf if masked else min(choice.logit - logsumexp, 0.0),
        final_logprob=choice.final_logprob,
        rank=choice.rank,
        count=count,
    )
