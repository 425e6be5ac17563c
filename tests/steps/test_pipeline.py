"""Pipelines: local steps and an exchange in chunks equal the same steps without chunks, at any size and back."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives
from meshfft.kernels.sliced import SlicedFFT
from meshfft.kernels.xla import XLA
from meshfft.layout.layout import even_cuts, from_spec
from meshfft.layout.padded_array import padded, stored_of
from meshfft.machine.chips import CPU
from meshfft.numerics.dtypes import Dot
from meshfft.operators.matrices import Roots
from meshfft.plans.primitive import bind
from meshfft.steps import AxisMove, Exchange, LocalFFT, Pipeline, Step
from meshfft.walks.walk import Walk


class Case(NamedTuple):
    """A slab's or pencil's steps: a local FFT of `dims`, and axes that go from dimension `source` to `target`."""

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    spec: P
    dims: tuple[int, ...]
    source: int
    target: int
    dim: int
    chunks: int
    exchange_first: bool = False


CASES = {
    "free": Case((8, 16, 12), (4,), P("x"), (1,), 0, 1, 2, 4),
    "free, uneven": Case((13, 11, 7), (4,), P("x"), (1,), 0, 1, 2, 3),
    "free, cut": Case((6, 8, 12), (2, 4), P("x", None, "y"), (1,), 0, 1, 2, 3),
    "free, more chunks than rows": Case((8, 8, 3), (8,), P("x"), (1,), 0, 1, 2, 8),
    "source": Case((16, 8, 6), (4,), P("x"), (1, 2), 0, 1, 0, 2),
    "source, uneven": Case((14, 11, 5), (3,), P("x"), (1, 2), 0, 1, 0, 2),
    "source, two axes, uneven": Case((27, 19), (2, 4), P(("x", "y")), (1,), 0, 1, 0, 3),
    "target": Case((6, 16, 8), (4,), P("x"), (0,), 0, 1, 1, 2, True),
    "target, uneven": Case((7, 13, 11), (4,), P("x"), (0,), 0, 1, 1, 3, True),
    "target, two axes, uneven": Case((17, 29), (2, 4), P(("x", "y")), (0,), 0, 1, 1, 3, True),
}


def _roots(length: int) -> Roots:
    return Roots(length, -1, length, length)


def _walks(case: Case, planes: bool = False, dot: Dot | None = None) -> tuple[Walk, Walk]:
    """The steps one by one, and as one pipeline."""
    sizes = dict(zip("xy", case.sizes, strict=False))
    start = from_spec(case.shape, sizes, case.spec)
    lengths = tuple(case.shape[d] for d in case.dims)
    moved = [(cut.axis, cut.parts) for cut in start.cuts[case.source]]
    steps: list[Step] = [
        LocalFFT(case.dims, _roots(lengths[-1]), lengths, lengths, SlicedFFT(dot) if dot else XLA),
        Exchange((AxisMove(case.source, case.target, even_cuts(case.shape[case.target], moved)),), packed=True),
    ]
    chosen = tuple(steps[::-1] if case.exchange_first else steps)
    pipeline = Pipeline(chosen, case.dim, case.chunks)
    return Walk(start, chosen, planes=planes), Walk(start, (pipeline,), planes=planes)


def _lowest(case: Case) -> tuple[Walk, Walk]:
    """The same for transforms that keep half of the modes."""
    start = _walks(case)[0].start
    (dim,), few = case.dims, (case.shape[case.dims[0]] + 1) // 2
    local = LocalFFT(case.dims, _roots(case.shape[dim]), (few,), (case.shape[dim],), lowest=1)
    size = case.shape[case.target] if case.exchange_first else local.after(start).shape[case.target]
    moved = [(cut.axis, cut.parts) for cut in start.cuts[case.source]]
    exchange = Exchange((AxisMove(case.source, case.target, even_cuts(size, moved)),), packed=True)
    chosen: tuple[Step, ...] = (exchange, local) if case.exchange_first else (local, exchange)
    return Walk(start, chosen), Walk(start, (Pipeline(chosen, case.dim, case.chunks),))


def _input(case: Case, walk: Walk, seed: int = 0) -> jax.Array:
    return stored_of(mf.shard(noise(case.shape, seed=seed), mesh(case.sizes), walk.start.spec))


def _logical(y: jax.Array, walk: Walk) -> np.ndarray:
    return mf.gather(padded(y, walk.end, None))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["free, cut", "target", "target, uneven"])
def test_chunks_of_the_lowest_modes(name: str) -> None:
    """Catches chunks of the size before the modes are dropped."""
    plain, chunked = _lowest(CASES[name])
    x, where = _input(CASES[name], plain), mesh(CASES[name].sizes)
    (expected,), (found,) = bind([x], plain, where), bind([x], chunked, where)
    assert chunked.end == plain.end and error(_logical(found, chunked), _logical(expected, plain)) <= 1e-6
    (back,), (again,) = (bind([one], walk.adjoint(), where) for one, walk in ((expected, plain), (found, chunked)))
    assert error(_logical(again, chunked.adjoint()), _logical(back, plain.adjoint())) <= 1e-6


@pytest.mark.quick(0, 2, 7)
@pytest.mark.parametrize("name", CASES)
def test_chunks_change_no_value_and_no_sharding(name: str) -> None:
    """Catches rows that arrive out of order, a chunk lost or doubled at the end, and padding among the rows."""
    case = CASES[name]
    plain, chunked = _walks(case)
    assert chunked.end == plain.end and chunked.steps[0].dims == case.dims
    x, where = _input(case, plain), mesh(case.sizes)
    (expected,), (found,) = bind([x], plain, where), bind([x], chunked, where)
    assert found.shape == plain.end.storage and found.sharding.is_equivalent_to(expected.sharding, found.ndim)
    truth = np.fft.fftn(noise(case.shape).astype(complex), axes=case.dims)
    assert error(_logical(found, chunked), truth) <= 4e-7
    np.testing.assert_allclose(_logical(found, chunked), _logical(expected, plain), rtol=1e-5, atol=1e-5)


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", CASES)
def test_planes_go_as_complex_numbers_do(name: str) -> None:
    """Catches parts of split complex that are cut or joined in different ways."""
    case = CASES[name]
    plain, chunked = _walks(case, planes=True)
    x = _input(case, plain)
    re, im = bind([x.real, x.imag], chunked, mesh(case.sizes), planes=True)
    assert re.dtype == np.float32
    (expected,) = bind([x], plain, mesh(case.sizes))
    found = _logical(re, chunked) + 1j * _logical(im, chunked)
    np.testing.assert_allclose(found, _logical(expected, plain), rtol=1e-5, atol=1e-5)


@pytest.mark.more
@pytest.mark.parametrize("name", ["source, uneven", "target"])
def test_chunks_of_float64_by_slices(x64: None, name: str) -> None:
    """Catches chunks transformed by another step than requested, or a pipeline without its kind of products, so that
    its collectives on a TPU are counted as those of float32.
    """
    case, dot = CASES[name], Dot("int8x7", 4)
    plain, chunked = _walks(case, planes=True, dot=dot)
    assert chunked.steps[0].numbers.dots == (dot,) and chunked.error(16) == plain.error(16)
    on_tpu = _walks(case, planes=True, dot=dot._replace(unit="int8"))[1]
    assert on_tpu.collectives == {name: 2 * many for name, many in chunked.collectives.items()}
    x, where = noise(case.shape, "complex128"), mesh(case.sizes)
    planes = [stored_of(mf.shard(part, where, plain.start.spec)) for part in (x.real, x.imag)]
    re, im = bind(planes, chunked, where, planes=True)
    truth = np.fft.fftn(x, axes=case.dims)
    assert error(_logical(re, chunked) + 1j * _logical(im, chunked), truth) <= 1e-15
    re, im = bind([re, im], chunked.adjoint(), where, planes=True)
    back = _logical(re, chunked.adjoint()) + 1j * _logical(im, chunked.adjoint())
    assert error(back, x * np.prod([case.shape[d] for d in case.dims])) <= 2e-15


@pytest.mark.quick(0, 5)
@pytest.mark.parametrize("name", CASES)
def test_the_walk_back_is_the_adjoint_and_a_pipeline_too(name: str) -> None:
    """Catches a transpose whose chunks are taken along the wrong end of the move: <A x, z> = <x, A* z>."""
    case = CASES[name]
    _, walk = _walks(case)
    back = walk.adjoint()
    (step,) = back.steps
    assert isinstance(step, Pipeline) and (step.dim, step.chunks) == (case.dim, case.chunks)
    assert back.end == walk.start and step.move.target == case.source
    x, where = _input(case, walk), mesh(case.sizes)
    z = stored_of(mf.shard(noise(case.shape, seed=1), where, walk.end.spec))
    (y,), (w,) = bind([x], walk, where), bind([z], back, where)
    left, right = np.vdot(noise(case.shape, seed=1), _logical(y, walk)), np.vdot(_logical(w, back), noise(case.shape))
    assert abs(left - right) <= 1e-5 * np.linalg.norm(_logical(y, walk)) * np.linalg.norm(_logical(z, walk))
    _, pull = jax.vjp(lambda x: bind([x], walk, where)[0], x)
    (gradient,) = pull(jnp.conj(z))
    np.testing.assert_allclose(_logical(gradient, back), _logical(w, back).conj(), rtol=1e-5, atol=1e-4)


@pytest.mark.quick(2, 5, 7, 8, 11)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("planes", [1, 2])
def test_every_chunk_is_one_exchange(name: str, planes: int) -> None:
    """Catches chunks that a compiler is free to batch into one, and an array gathered to be cut."""
    case = CASES[name]
    _, walk = _walks(case, planes=planes == 2)
    x = _input(case, walk)
    arrays = [x] if planes == 1 else [x.real, x.imag]
    lowered = jax.jit(lambda *arrays: bind(arrays, walk, mesh(case.sizes), planes == 2)).lower(*arrays)
    step = walk.steps[0]
    assert isinstance(step, Pipeline)
    rows = (walk.end if case.dim == case.target else walk.start).block[case.dim]
    chunks = -(-rows // -(-rows // case.chunks))  # equal chunks of whole rows: where few are left, fewer than asked for
    assert collectives(lowered.compile()) == {"all-to-all": chunks * planes}
    assert lowered.as_text().count("optimization_barrier") == chunks - 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["free, cut", "source, two axes, uneven", "target, uneven"])
def test_a_batch_dimension_changes_nothing(name: str) -> None:
    """Catches a dimension that is not counted on when another is put before it."""
    case = CASES[name]
    _, walk = _walks(case)
    where, x = mesh(case.sizes), _input(case, walk)
    many = jax.vmap(lambda x: bind([x], walk, where)[0], in_axes=1, out_axes=1)(jnp.stack([x, 2 * x], 1))
    (one,) = bind([x], walk, where)
    np.testing.assert_allclose(_logical(many[:, 1], walk), 2 * _logical(one, walk), rtol=1e-5, atol=1e-4)


def test_the_work_is_that_of_its_steps_in_parts() -> None:
    """Catches bytes counted once a chunk, and temporaries of the whole block where only chunks have them."""
    plain, chunked = _walks(Case((64, 64, 32), (8,), P("x"), (1,), 0, 1, 2, 8))
    whole, parts = plain.work(8, CPU), chunked.work(8, CPU)
    assert (parts.sent_bytes, parts.flops, parts.memory_bytes) == (whole.sent_bytes, whole.flops, whole.memory_bytes)
    (own,) = chunked.works(8, CPU)
    assert own.parts == 8 and own.peak_bytes < whole.peak_bytes
