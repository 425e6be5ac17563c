"""The evaluation's rows by the cost model, with single operations and floors."""

import itertools
from collections.abc import Iterable, Iterator

from meshfft.machine.machine import Move

from ..rows import Values
from .cases import MEASURED, POD, SIZES, TABLE, Case, works
from .floors import CHIPS, CORES, floor

COST = "cost model"
BY_LINK = {"ring": "permutes", "two-way ring": "permutes", "all-to-all": "all-to-alls"}


def modelled_rows(cases: Iterable[Case]) -> Iterator[Values]:
    for case in cases:
        parts = _parts(case)
        waits = "nothing overlaps" if case.algorithm.apart else "links under the work where the walk allows it"
        yield about(case) | {
            "quantity": "total",
            "seconds": case.seconds.total,
            "how": f"{COST}: {waits}",
            "parts": parts,
            "binds": max(parts, key=parts.__getitem__),
            "bytes_per_core": case.plan.peak_bytes,
            "fits": case.plan.fits,
        }
        if case.figure == "kdft-3d" and case.algorithm.apart:
            yield from _single_rows(case)


def known_rows(sizes: Iterable[int] = SIZES) -> Iterator[Values]:
    """Numbers without a model of ours: the paper's Table I, and the floors."""
    for family, n in itertools.product(("KDFT", "FFT"), sizes):
        own = {"figure": TABLE, "family": family, "shape": [n] * 3, "cores": CHIPS * CORES, "topology": POD}
        published = {"known": "published", "how": "measured by the paper on a TPU v3 pod (Table I)"}
        published |= {"algorithm": "paper", "quantity": "total", "note": "mesh not stated"}
        yield {**own, **published, "seconds": MEASURED[n][family]}
        parts = floor(family, n)
        binds = max(parts, key=parts.__getitem__)
        formula = {"known": "modelled", "how": "formula with published rates of the chip", "quantity": "floor"}
        yield {**own, **formula, "algorithm": family, "seconds": parts[binds], "parts": parts, "binds": binds}


def about(case: Case) -> Values:
    made = case.plan
    assert made.mesh is not None
    dots = {dot for step in made.walk.steps for dot in step.numbers.dots}
    products = ", ".join(f"{dot.tier}, {dot.multiplications} a complex one" for dot in sorted(dots)) or "XLA's FFT"
    return {
        "figure": case.figure,
        "family": case.algorithm.family,
        "shape": list(made.shape),
        "cores": case.cores,
        "topology": case.topology,
        "algorithm": case.algorithm.name,
        "known": "modelled",
        "mesh": dict(made.mesh.shape),
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


def _single_rows(case: Case) -> Iterator[Values]:
    made = case.plan
    step, layout = next(pair for pair in made.walk.pairs if pair[0].dims == (2,))
    work = step.work(layout, made.dtype.itemsize, made.machine.chip)
    (move,) = work.moves
    permute = made.machine.move_seconds(Move("ring", move.axes, move.nbytes, 1))
    einsum = made.machine.seconds(work).products / work.parts
    for name, spent, times in (("permute", permute, move.times), ("einsum", einsum, work.parts)):
        own = {"quantity": f"single {name}", "seconds": spent, "how": COST}
        yield about(case) | own | {"note": f"{times} along the third dimension"}
