"""Candidates: the kinds of steps that each method takes. What a kind offers from a layout is its own (see Step)."""

from collections.abc import Iterator

from ..layout.layout import Layout
from ..operators.matrices import Matrix
from ..steps import (
    Exchange,
    LocalFFT,
    LocalTrig,
    PackedFFT,
    PhaseFFT,
    Pipeline,
    Problem,
    RealFFT,
    RingDense,
    SixStep,
    Step,
)

METHODS: dict[str, tuple[type[Step], ...]] = {
    "auto": (LocalFFT, RealFFT, LocalTrig, Exchange, Pipeline, RingDense, PhaseFFT, SixStep, PackedFFT),
    "transpose": (LocalFFT, RealFFT, LocalTrig, Exchange, Pipeline),
    "cooley-tukey": (LocalFFT, RealFFT, LocalTrig, PhaseFFT, PackedFFT),
    "kdft": (RingDense, Exchange),
}


def moves(problem: Problem, layout: Layout, todo: dict[int, Matrix]) -> Iterator[Step]:
    """The steps that may be taken from a layout."""
    for kind in METHODS[problem.method]:
        yield from kind.offers(problem, layout, todo)
