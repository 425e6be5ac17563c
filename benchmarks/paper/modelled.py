"""The evaluation's rows by the cost model, with single operations and floors."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from meshfft.machine.machine import Move

from .cases import MEASURED, POD, SIZES, TABLE, Case, works
from .floors import RATES, floor
from .rows import Row

COST = "cost model"
BY_LINK = {"ring": "permutes", "two-way ring": "permutes", "all-to-all": "all-to-alls"}


def modelled_rows(cases: Iterable[Case]) -> Iterator[Row]:
    for case in cases:
        yield total_row(case)
        if case.figure == "kdft-3d" and case.algorithm.apart:
            yield from _single_rows(case)


def known_rows(sizes: Iterable[int] = SIZES) -> Iterator[Row]:
    """Numbers without a model of ours: the paper's Table I, and the floors."""
    for family, n in itertools.product(("KDFT", "FFT"), sizes):
        yield Row(**_about(family, n), algorithm="paper", quantity="total", seconds=MEASURED[n][family],
                  known="published", how="measured by the paper on a TPU v3 pod (Table I)",
                  note="mesh not stated")  # fmt: skip
        yield _floor_row(family, n)


def total_row(case: Case) -> Row:
    parts = _parts(case)
    waits = "nothing overlaps" if case.algorithm.apart else "links under the work where the walk allows it"
    return Row(
        **about(case),
        quantity="total",
        seconds=case.seconds.total,
        known="modelled",
        how=f"{COST}: {waits}",
        parts=parts,
        binds=max(parts, key=parts.__getitem__),
        bytes_per_core=case.plan.peak_bytes,
        fits=case.plan.fits,
    )


def about(case: Case) -> dict[str, Any]:
    made = case.plan
    dots = {dot for step in made.walk.steps for dot in step.numbers.dots}
    products = ", ".join(f"{dot.tier}, {dot.multiplications} a complex one" for dot in sorted(dots)) or "XLA's FFT"
    return {
        "figure": case.figure,
        "family": case.algorithm.family,
        "shape": made.shape,
        "cores": case.cores,
        "topology": case.topology,
        "algorithm": case.algorithm.name,
        "mesh": dict(made.mesh.shape) if made.mesh is not None else {},
        "steps": made.name,
        "options": {**case.algorithm.options, "products": products},
        "note": f"mesh: {case.meshes}",
    }


def _parts(case: Case) -> dict[str, float]:
    made, spent = case.plan, case.seconds
    parts = {"products": spent.products, "vector": spent.vector, "memory": spent.memory}
    for move in (move for work in works(made, case.algorithm) for move in work.moves):
        kind = BY_LINK[move.kind]
        parts[kind] = parts.get(kind, 0.0) + made.machine.move_seconds(move)
    return parts


def _single_rows(case: Case) -> Iterator[Row]:
    made = case.plan
    step, layout = next(pair for pair in made.walk.pairs if pair[0].dims == (2,))
    work = step.work(layout, made.dtype.itemsize, made.machine.chip)
    (move,) = work.moves
    times = {
        "single permute": made.machine.move_seconds(Move("ring", move.axes, move.nbytes, 1)),
        "single einsum": made.machine.seconds(work).products / work.parts,
    }
    for quantity, spent in times.items():
        count = f"{move.times if quantity == 'single permute' else work.parts} along the third dimension"
        row = {**about(case), "note": count}
        yield Row(**row, quantity=quantity, seconds=spent, known="modelled", how=COST)


def _floor_row(family: str, n: int) -> Row:
    parts = floor(family, n)
    return Row(
        **_about(family, n),
        algorithm=family,
        quantity="floor",
        seconds=max(parts.values()),
        known="modelled",
        how="formula with published rates of the chip",
        parts=parts,
        binds=max(parts, key=parts.__getitem__),
        options={"precision": "bf16x6"},
    )


def _about(family: str, n: int) -> dict[str, Any]:
    cores = RATES.chips * RATES.cores
    return {"figure": TABLE, "family": family, "shape": (n,) * 3, "cores": cores, "topology": POD}
