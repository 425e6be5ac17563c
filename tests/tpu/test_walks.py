"""Local FFTs by kernels of a TPU's vector unit, as steps of a walk: on CPU devices, with the real collectives."""

import contextlib
import functools
import math
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from marks import slow_but
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.layout.layout import even_cuts, from_spec
from meshfft.machine.chip import Chip
from meshfft.machine.chips import TPUS
from meshfft.machine.topology import topology
from meshfft.operators.matrices import Roots
from meshfft.plans.primitive import bind
from meshfft.steps import AxisMove, Exchange, LocalFFT, Pipeline
from meshfft.tpu import fft
from meshfft.tpu.engines import VectorFFT
from meshfft.walks.walk import Walk, fused

POD = "v3:2x2"  # eight devices
ROOM = 100 * 2**20  # bytes of fast memory
Options = dict[str, Any]
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Options]] = {
    "slab": ((16, 64, 8), (8,), {}),
    "slab, any order": ((32, 16, 16), (8,), {"order": "any"}),
    "pencil": ((16, 24, 16), (2, 4), {}),
    "pencil, any order, back": ((8, 16, 24), (4, 2), {"order": "any", "inverse": True}),
    "one plane": ((48, 64), (8,), {}),
    "uneven": ((16, 13, 9), (8,), {"axes": (0,)}),
    "cropped and padded": ((16, 12, 8), (8,), {"s": (16, 8, 24)}),
    "block": ((16, 8, 24), (2, 2, 2), {"order": "any"}),
    "a length without a kernel": ((16, 22, 8), (8,), {}),
    "lengths that are brought to where they have kernels": ((63, 20, 128), (8,), {"axes": (1, 2)}),
}
QUICK = ("pencil, any order, back", "uneven")


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    """The kernels themselves, as Pallas interprets them."""
    jax.clear_caches()
    with contextlib.ExitStack() as patches:
        for name in ("fft", "fft_between", "real_fft"):
            by_kernels = functools.partial(getattr(fft, name), interpret=True)
            patches.enter_context(mock.patch.object(fft, name, by_kernels))
        yield
    jax.clear_caches()


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_kernels_in_a_walk_are_xlas_ffts(name: str) -> None:
    """Catches chunks that arrive out of order, a part sent to the wrong device, planes exchanged, a sign, padding read,
    a wrong adjoint, and collectives that no plan printed.
    """
    shape, sizes, options = CASES[name]
    where, x = mesh(sizes), noise(shape, seed=1)
    how: Options = {"mesh": where, "topology": POD, "method": "transpose", **options}
    plan, plain = (mf.plan(shape, engine=engine, **how) for engine in ("auto", "xla"))
    assert "(vector)" in plan.name and "vector" not in plain.name
    w = noise(plan.out_shape, seed=2)
    xs, ws = mf.shard(x, where, plan.in_layout.spec), mf.shard(w, where, plan.out_layout.spec)
    run = jax.jit(plan).lower(xs).compile()
    assert collectives(run) == plan.collectives
    y, back = run(xs), jax.jit(plan.adjoint)(ws)
    s, axes = options.get("s"), options.get("axes", range(x.ndim))
    expected = np.fft.ifftn(x) if "inverse" in options else np.fft.fftn(x, s=s, axes=axes)
    assert error(mf.gather(y), expected) <= 3e-7, plan.name
    there, again = np.vdot(w, expected), np.vdot(mf.gather(back), x)
    assert abs(there - again) <= 1e-6 * np.linalg.norm(w) * np.linalg.norm(expected)


REAL_CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], Options]] = {
    "slab": ((16, 24, 128), (8,), {}),
    "pencil, any order": ((16, 8, 256), (2, 4), {"order": "any"}),
    "uneven, cropped and padded": ((13, 6, 200), (8,), {"s": (8, 256), "axes": (1, 2)}),
}


@pytest.mark.more
@pytest.mark.parametrize("name", slow_but(("slab",), REAL_CASES))
def test_real_kernels_in_a_walk(name: str) -> None:
    """Catches a half spectrum made by products although a kernel is cheaper, padding read as samples, an inverse that
    doubles the wrong bins, a wrong adjoint, and collectives that no plan printed.
    """
    shape, sizes, options = REAL_CASES[name]
    where, x = mesh(sizes), noise(shape, "float32", seed=1)
    how: Options = {"mesh": where, "topology": POD, "method": "transpose", "kind": "rfft", **options}
    plan = mf.plan(shape, **how)
    assert re.search(r"real fft [YZ, ]+ \(vector\)", plan.name), plan.name
    y = noise(plan.out_shape, seed=2)
    xs, ys = mf.shard(x, where, plan.in_layout.spec), mf.shard(y, where, plan.out_layout.spec)
    run = jax.jit(plan).lower(xs).compile()
    assert collectives(run) == plan.collectives
    expected = np.fft.rfftn(x.astype(float), s=options.get("s"), axes=options.get("axes", range(x.ndim)))
    assert error(mf.gather(run(xs)), expected) <= 3e-7, plan.name
    there, again = np.vdot(y, expected).real, np.vdot(mf.gather(jax.jit(plan.adjoint)(ys)), x)
    assert abs(there - again) <= 1e-6 * np.linalg.norm(y) * np.linalg.norm(expected)
    if "s" not in options:
        assert error(mf.gather(jax.jit(plan.inverse)(run(xs))), x) <= 1e-6


@pytest.mark.more
def test_pieces_are_handed_from_exchange_to_kernel() -> None:
    """Catches a piece or a part in another's place, planes exchanged, and a walk back that takes what none left."""
    shape, where, sizes = (16, 64, 8), mesh((8,)), {"x": 8}
    start = from_spec(shape, sizes, P("x"))
    opens, closes = (AxisMove(*ends, even_cuts(n, [("x", 8)])) for ends, n in (((0, 1), 64), ((1, 0), 16)))
    lines = ((1, 2), (64, 8)), ((0,), (16,))
    first, second = (LocalFFT(d, Roots(n[-1], -1, n[-1], n[-1]), n, n, VectorFFT(ROOM)) for d, n in lines)
    steps = (
        Pipeline((first, Exchange((opens,), packed=True)), 0, 2),
        Pipeline((second, Exchange((closes,), packed=True)), 1, 2),
    )
    walk = Walk(start, fused(start, steps, 8), planes=True)
    assert isinstance(walk.steps[0], Pipeline) and walk.steps[0].hands == (0,)
    assert all(step.sends and step.sends.joint(layout) for step, layout in walk.pairs)
    assert walk.collectives == {"all-to-all": 4} and walk.end == start
    x, w = noise(shape, seed=4), noise(shape, seed=5)
    for way, given in ((walk, x), (walk.adjoint(), w)):
        planes = [jax.device_put(plane, NamedSharding(where, P("x"))) for plane in (given.real, given.imag)]
        re, im = bind(planes, way, where, planes=True)
        found = np.asarray(re) + 1j * np.asarray(im)
        expected = np.fft.fftn(x) if way is walk else np.fft.ifftn(w, norm="forward")
        assert error(found, expected) <= 3e-7


@pytest.mark.parametrize("chip", TPUS, ids=lambda chip: chip.name)
def test_a_tpus_plan_takes_kernels_by_price_and_says_so(chip: Chip) -> None:
    """Catches kernels that are never chosen, or chosen for lengths without any, and an `engine` option without
    effect."""
    pod = topology(f"{chip.name}:{'x'.join('224'[: len(chip.torus)])}")
    where = AbstractMesh((pod.devices,), ("x",))
    shape = (256 if chip in TPUS[:3] else 512,) * 3  # fast memory of the first ones is small
    plan, plain = (mf.plan(shape, mesh=where, topology=pod, engine=engine) for engine in ("auto", "xla"))
    assert str(plan).count("(vector)") == 2 and "vector" not in plain.name
    assert plan.seconds is not None and plain.seconds is not None and plan.seconds < plain.seconds
    assert plan.work.flops == round(15 * math.log2(shape[0]) * math.prod(shape) / pod.devices)
    assert mf.plan((64, 8191, 256), mesh=where, topology=pod, axes=(1,), order="any").name == "fft Y (vector chirp)"
    steps = mf.plan((512, 500, 500), mesh=where, topology=pod, axes=(1, 2), order="any").name
    assert steps in ("fft Y, Z (vector)", "fft Z (vector); fft Y (vector)")


@pytest.mark.parametrize(
    ("shape", "sizes", "way"),
    [((500,) * 3, (4,), {}), ((128,) * 3, (2, 2), {"precision": "float64", "method": "transpose"})],
)
def test_no_step_is_cut_into_chunks_that_cost_more(
    shape: tuple[int, ...], sizes: tuple[int, ...], way: Options
) -> None:
    """Catches chunks that end within a tile, and small ones of products by slices: by the compiler's schedules the
    plans that had them took 1.3 and 1.9 times as long."""
    with jax.enable_x64(True):
        plan = mf.plan(shape, mesh=AbstractMesh(sizes, ("x", "y")[: len(sizes)]), topology="v5e:2x2", **way)
    chunks = [step.dim for step in plan.walk.steps if isinstance(step, Pipeline)]
    assert chunks == ([] if way else [0]), plan.name


def test_an_engine_that_there_is_none_of() -> None:
    """Catches a name that is taken for another."""
    with pytest.raises(ValueError, match="engine 'fftw' is unknown: use one of 'auto', 'xla'"):
        mf.plan((8, 8), engine="fftw")
    assert mf.plan((64, 64, 64), mesh=mesh((8,)), engine="xla", method="transpose").name.count("(xla)") == 2
    assert error(np.asarray(mf.fftn(noise((8, 6)), engine="xla")), np.fft.fftn(noise((8, 6)))) <= 3e-7


@pytest.mark.more
def test_kernels_are_linear() -> None:
    """Catches a kernel without a rule for gradients, and one that is not the transpose."""
    planes, cts = (tuple(noise((2, 16, 3), "float32", seed=seed) for seed in seeds) for seeds in ((0, 1), (2, 3)))

    def run(re: ArrayLike, im: ArrayLike) -> tuple[Array, ...]:
        return fft.fft((jnp.asarray(re), jnp.asarray(im)), (1,), -1)

    there, back = jax.vjp(run, *planes)
    pairs = zip((*there, *planes), (*cts, *back(cts)), (1, 1, -1, -1), strict=True)
    assert abs(sum(sign * np.vdot(a, b) for a, b, sign in pairs)) <= 1e-5 * np.linalg.norm(there[0]) * np.linalg.norm(
        cts
    )
    changed = jax.jvp(run, cts, planes)[1]
    for alone, change in zip(there, changed, strict=True):
        assert error(np.asarray(change), np.asarray(alone)) <= 1e-6
