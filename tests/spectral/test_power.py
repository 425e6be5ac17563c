"""Power spectra of sharded arrays, against a loop over all modes."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.collectives.bins import RUN, _summed, binned
from meshfft.inspect.hlo import every_collective, program_of
from meshfft.layout.layout import from_spec


class Case(NamedTuple):
    """An array on a mesh, the axes to transform, and their periods."""

    mesh: tuple[int, ...]
    spec: P
    shape: tuple[int, ...]
    kind: AxisType
    lengths: tuple[float, ...]
    axes: tuple[int, ...] | None = None


CASES = {
    "slab": Case((8,), P("x"), (16, 9, 10), AxisType.Auto, (1.0, 1.0, 1.0)),
    "pencil": Case((2, 4), P("x", "y"), (12, 8, 7), AxisType.Explicit, (3.0, 1.4, 1.0)),
    "block": Case((2, 2, 2), P("x", "y", "z"), (6, 8, 10), AxisType.Explicit, (2.0, 2.0, 2.0)),
    "some axes": Case((2, 2), P("y", "x"), (6, 8, 5), AxisType.Auto, (2.0, 5.0), (2, 0)),
    "line": Case((8,), P("x"), (24,), AxisType.Auto, (2.0,)),
    "one device": Case((), P(), (5, 6), AxisType.Auto, (1.0, 1.0)),
}
TYPES = (("float32", "float32"), ("complex64", "complex64"), ("float32", "complex64"))


def _put(x: np.ndarray, case: Case) -> Array:
    return jax.device_put(x, NamedSharding(mesh(case.mesh, case.kind), case.spec)) if case.mesh else jnp.asarray(x)


def _modes(x: np.ndarray, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """|k| and |X|^2 of every mode."""
    axes = case.axes or tuple(range(x.ndim))
    square = np.zeros(x.shape)
    for axis, length in zip(axes, case.lengths, strict=True):
        k = 2 * np.pi * np.fft.fftfreq(x.shape[axis], length / x.shape[axis])
        square = square + k.reshape([-1 if d == axis else 1 for d in range(x.ndim)]) ** 2
    spectrum = dft(x, axes) / np.prod([x.shape[d] for d in axes])
    return np.sqrt(square).ravel(), (abs(spectrum) ** 2).ravel()


def _truth(x: np.ndarray, case: Case, edges: Sequence[float]) -> mf.PowerSpectrum:
    """Mode by mode; one within a rounding of an edge is on it."""
    k, energy = _modes(x, case)
    place = np.searchsorted(np.asarray(edges) * (1 - 1e-12), k, side="right") - 1
    place[np.isclose(k, edges[-1], rtol=1e-12)] = len(edges) - 2
    bins = range(len(edges) - 1)
    counts = np.array([np.sum(place == b) for b in bins])
    mean, power = (np.array([np.sum(v[place == b]) for b in bins]) / np.maximum(counts, 1) for v in (k, energy))
    return mf.PowerSpectrum(np.where(counts, mean, np.add(edges[1:], edges[:-1]) / 2), power, counts)  # type: ignore


def _same(found: mf.PowerSpectrum, truth: mf.PowerSpectrum, bound: float = 1e-6) -> None:
    np.testing.assert_array_equal(found.counts, truth.counts)
    assert error(found.power, np.asarray(truth.power)) <= bound and error(found.k, np.asarray(truth.k)) <= bound


@pytest.mark.quick(5)
@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_every_mode_is_counted_once_and_parseval(name: str, dtype: str) -> None:
    """Catches half spectra counted once, their edges twice, padding counted, a wrong radius, and a wrong factor."""
    case, x = CASES[name], noise(CASES[name].shape, dtype)
    least, largest = 2 * np.pi / max(case.lengths), float(_modes(x, case)[0].max())
    edges = [0.0, *(least * (np.arange(round(largest / least) + 1) + 0.5))]
    found = mf.power_spectrum(_put(x, case), case.lengths, axes=case.axes)
    _same(found, _truth(x, case, edges))
    kept = 1 if case.axes is None else x.size // np.prod([x.shape[d] for d in case.axes])
    assert float(jnp.sum(found.power * found.counts)) == pytest.approx(np.mean(abs(x) ** 2) * kept, rel=1e-6)
    assert all(part.dtype == np.float32 and part.sharding.is_fully_replicated for part in found)


@pytest.mark.more
@pytest.mark.parametrize("name", ["pencil", "line"])
def test_bins_by_number_and_by_edges_in_double_precision(x64: None, name: str) -> None:
    """Catches modes on edges in the wrong bin, the largest mode lost, and those beyond the edges counted."""
    case, x = CASES[name], noise(CASES[name].shape, "float64")
    a, largest = _put(x, case), float(_modes(x, case)[0].max())
    for bins in (1, 4, 7):
        found = mf.power_spectrum(a, case.lengths, bins=bins)
        _same(found, _truth(x, case, np.linspace(0, largest, bins + 1).tolist()), 1e-13)
        assert int(jnp.sum(found.counts)) == x.size
    on_modes = [2 * np.pi * n / case.lengths[-1] for n in (0, 1, 2, 3)]
    for edges in (on_modes, np.nextafter(on_modes[1:], np.inf).tolist(), [0.3, 0.301, 50.0]):
        _same(mf.power_spectrum(a, case.lengths, bins=edges), _truth(x, case, edges), 1e-13)


def test_a_wave_has_its_power_where_it_is() -> None:
    """Catches a unit of length or power that is off by a factor: cos(k x) has 1/4 in each of two modes."""
    n = np.arange(32)
    x = np.cos(2 * np.pi * 5 * n / 32).astype("float32")
    found = mf.power_spectrum(x, (4.0,))
    assert float(found.k[5]) == pytest.approx(2 * np.pi * 5 / 4, rel=1e-6)
    np.testing.assert_allclose(found.power, np.where(np.arange(17) == 5, 0.25, 0), atol=1e-7)
    assert found.counts.tolist() == [1] + [2] * 15 + [1]


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["slab", "pencil", "block"])
def test_only_bins_are_reduced_over_devices(name: str) -> None:
    """Catches a gather, a walk back to natural order, and a sum over devices of more than the bins."""
    case = CASES[name]
    devices, spec = mesh(case.mesh, case.kind), case.spec
    plan = mf.plan(case.shape, mesh=devices.abstract_mesh, spec=spec, kind="rfft", order="any")
    run = jax.jit(lambda x: mf.power_spectrum(x, bins=5, spec=spec))
    x = _put(noise(case.shape, "float32"), case)
    _same(run(x), mf.power_spectrum(x, bins=5))
    found = every_collective(program_of(run.lower(x).compile()))
    walked = [one for one in found if one.kind != "all-reduce"]
    assert {one.kind for one in walked} == {"all-to-all"}
    assert sum(one.times for one in walked) == plan.collectives["all-to-all"]
    assert sum(one.bytes for one in found if one.kind == "all-reduce") <= 4 * 5 * 4


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_gradients_are_exact(x64: None, kind: AxisType) -> None:
    """Catches a gradient lost, or counted once for each device: of a quadratic function, differences are exact."""
    case = CASES["block"]._replace(kind=kind)
    x, t = (_put(noise(case.shape, "float64", seed), case) for seed in (0, 1))
    spec = case.spec if kind == AxisType.Auto else None

    @jax.jit
    def loss(x: Array) -> Array:
        power = mf.power_spectrum(x, spec=spec, bins=6).power
        return jnp.sum(power * np.arange(1.0, 7.0))

    slope = float(jnp.sum(jax.jit(jax.grad(loss))(x) * t))
    assert slope == pytest.approx(float(loss(x + t) - loss(x - t)) / 2, rel=1e-11)


@pytest.mark.more
def test_long_sums_in_float32() -> None:
    """Catches a running sum that stops growing, or drifts, once it is large, and counts kept as floats."""
    many = 40 * RUN + 17
    x = np.random.default_rng(0).random(many).astype("float32") + 1
    layout, weight = from_spec((many,), {}, None), jnp.full(many, 2, jnp.int32)
    sums, _, counts = binned(jnp.asarray(x) ** 2, (jnp.zeros(many),), (weight,), jnp.array([0.0, 1.0]), layout, None)
    assert int(counts[0]) == 2 * many
    assert float(sums[0]) == pytest.approx(2 * float(np.sum(x.astype(float) ** 2)), rel=2e-6)


@pytest.mark.more
def test_modes_outside_the_edges_of_long_blocks() -> None:
    """Catches a mode below the first edge that counts in the last bin, of the run before it."""
    many = 3 * RUN + 5
    k = np.arange(many) % 5 + 0.5
    layout, weight, edges = from_spec((many,), {}, None), jnp.ones(many, jnp.int32), jnp.array([1.0, 2.0, 3.0])
    sums, _, counts = binned(jnp.ones(many), (jnp.asarray(k, jnp.float32),), (weight,), edges, layout, None)
    assert counts.tolist() == sums.tolist() == [np.sum(k == 1.5), np.sum(k == 2.5)]


def test_planes_and_batches() -> None:
    """Catches planes taken for a batch, and a power that vmap sums over all."""
    case = CASES["block"]
    x = noise(case.shape)
    whole = mf.power_spectrum(_put(x, case))
    _same(mf.power_spectrum((_put(x.real, case), _put(x.imag, case))), whole)
    each = jax.jit(jax.vmap(lambda part: mf.power_spectrum(part).power))(_put(x, case))
    for row, part in zip(each, x, strict=True):
        assert error(row, np.asarray(mf.power_spectrum(part).power)) <= 1e-6


@pytest.mark.quick(4, 5)
@pytest.mark.parametrize(
    ("name", "types"),
    slow_rows(
        lambda name, types: types == TYPES[list(CASES).index(name) % 3] or name in ("pencil", "line"), CASES, TYPES
    ),
)
def test_cross_power_mode_by_mode(name: str, types: tuple[str, str]) -> None:
    """Catches the wrong one conjugated, imaginary parts of real fields or none of complex ones, and another factor."""
    case, (first, second) = CASES[name], types
    x, y = noise(case.shape, first), noise(case.shape, second, 1)
    axes = case.axes or tuple(range(x.ndim))
    product = (dft(x, axes) * dft(y, axes).conj()).ravel() / np.prod([x.shape[d] for d in axes]) ** 2
    largest = float(_modes(x, case)[0].max())
    edges: list[float] = np.linspace(0, largest * 1.01, 6).tolist()
    place = np.searchsorted(edges, _modes(x, case)[0], side="right") - 1
    counts = np.array([np.sum(place == b) for b in range(5)])
    truth = np.array([np.sum(product[place == b]) for b in range(5)]) / np.maximum(counts, 1)
    a, b = _put(x, case), _put(y, case)
    found = mf.cross_spectrum(a, b, case.lengths, axes=case.axes, bins=edges)
    np.testing.assert_array_equal(found.counts, counts)
    assert error(found.power, truth) <= 1e-6
    assert found.power.dtype == (np.float32 if first == second == "float32" else np.complex64)
    assert error(found.k, np.asarray(mf.power_spectrum(a, case.lengths, axes=case.axes, bins=edges).k)) <= 1e-6
    kept = 1 if case.axes is None else x.size // np.prod([x.shape[d] for d in case.axes])
    total = complex(np.sum(np.asarray(found.power) * np.asarray(found.counts)))
    assert total == pytest.approx(np.mean(x * y.conj()) * kept, rel=1e-4)


@pytest.mark.quick(0)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_cross_power_sends_bins_and_has_exact_gradients(x64: None, kind: AxisType) -> None:
    """Catches a gradient lost in one of two arrays, a field's own power that is another, and a gather."""
    case = CASES["block"]._replace(kind=kind)
    x, y, t = (_put(noise(case.shape, "float64", seed), case) for seed in (0, 1, 2))
    spec = case.spec if kind == AxisType.Auto else None

    @jax.jit
    def loss(x: Array, y: Array) -> Array:
        return jnp.sum(mf.cross_spectrum(x, y, spec=spec, bins=6).power * np.arange(1.0, 7.0))

    along_x, along_y = jax.jit(jax.grad(loss, (0, 1)))(x, y)
    assert float(jnp.sum(along_x * t)) == pytest.approx(float(loss(x + t, y) - loss(x - t, y)) / 2, rel=1e-11)
    assert float(jnp.sum(along_y * t)) == pytest.approx(float(loss(x, y + t) - loss(x, y - t)) / 2, rel=1e-11)
    assert error(mf.cross_spectrum(x, x).power, np.asarray(mf.power_spectrum(x).power)) <= 1e-15
    found = every_collective(program_of(loss.lower(x, y).compile()))
    assert {one.kind for one in found} == {"all-to-all", "all-reduce"}
    assert sum(one.bytes for one in found if one.kind == "all-reduce") <= 8 * 6 * 5


@pytest.mark.more
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_cross_power_of_sizes_that_the_mesh_does_not_divide(kind: AxisType) -> None:
    """Catches padding counted as modes, or transformed as data."""
    x, y = (noise((10, 9, 7), "float32", seed) for seed in (0, 1))
    a, b = (mf.shard(one, mesh((2, 2, 2), kind), P("x", "y", "z")) for one in (x, y))
    for found in (mf.cross_spectrum(a, b), jax.jit(mf.cross_spectrum)(a, b)):
        truth = mf.cross_spectrum(x, y)
        np.testing.assert_array_equal(found.counts, truth.counts)
        assert error(found.power, np.asarray(truth.power)) <= 1e-6


@pytest.mark.more
@pytest.mark.parametrize("name", ["slab", "pencil"])
def test_eager_gradients_along_one_of_two_arrays(name: str) -> None:
    """Catches a mesh that is taken for another one, because eager `grad` shows one array's mesh without its devices."""
    case = CASES[name]
    x, y = (_put(noise(case.shape, "float32", seed), case) for seed in (0, 1))
    spec = case.spec if case.kind == AxisType.Auto else None

    def loss(x: Array, y: Array) -> Array:
        found = mf.cross_spectrum(x, y, spec=spec)
        return jnp.sum(found.power * found.counts)  # the mean of x y

    with jax.set_mesh(mesh(case.mesh, case.kind)):
        assert error(jax.grad(loss)(x, y) * x.size, np.asarray(y)) <= 1e-6
        assert error(jax.grad(loss, 1)(x, y) * x.size, np.asarray(x)) <= 1e-6


def test_a_mesh_of_one_device_within_jit() -> None:
    """Catches cuts by an Explicit axis of size one, which JAX refuses to sum into bins."""
    case = Case((1,), P("x"), (8, 6), AxisType.Explicit, (1.0, 1.0))
    x = _put(noise(case.shape, "float32"), case)
    _same(jax.jit(mf.power_spectrum)(x), mf.power_spectrum(np.asarray(x)))


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no bins": (lambda: mf.power_spectrum(np.ones(4), bins=0), ValueError, "bins is 0: give one at least"),
    "one edge": (lambda: mf.power_spectrum(np.ones(4), bins=[1.0]), ValueError, "give two or more, ascending"),
    "descending": (lambda: mf.power_spectrum(np.ones(4), bins=[1.0, 0.5]), ValueError, "give two or more, ascending"),
    "negative": (lambda: mf.power_spectrum(np.ones(4), bins=[-1.0, 0.5]), ValueError, "ascending from 0"),
    "infinite": (lambda: mf.power_spectrum(np.ones(4), bins=[0, np.inf]), ValueError, "ascending from 0"),
    "words": (lambda: mf.power_spectrum(np.ones(4), bins="auto"), TypeError, "give how many, or a sequence"),  # type: ignore[arg-type]
    "lengths": (lambda: mf.power_spectrum(np.ones((4, 4)), (1.0,)), ValueError, "1 lengths for 2 axes"),
    "shapes": (lambda: mf.cross_spectrum(np.ones(4), np.ones(5)), ValueError, r"x has shape \(4,\), y \(5,\)"),
    "shardings": (
        lambda: mf.cross_spectrum(_put(np.ones((16, 9, 10)), CASES["slab"]), np.ones((16, 9, 10))),
        ValueError,
        "shard them alike",
    ),
    "axes": (lambda: mf.power_spectrum(np.ones(4), axes=(1,)), ValueError, "axis 1 is out of range"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_wrong_calls_are_refused_with_the_value_and_the_remedy(case: str) -> None:
    """Catches a wrong call that passes, or an error that leaves the reader guessing."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bins", [5, 2**17])
def test_blocks_of_four_thousand_million_numbers(bins: int) -> None:
    """Catches a 32-bit index over more than 2^31 numbers, which wraps, so that numbers are silently lost."""
    block, index = (jax.ShapeDtypeStruct((2**32,), kind) for kind in (np.float32, np.int32))
    program = jax.make_jaxpr(_summed, static_argnums=2)(block, index, bins).jaxpr
    counted = [e.params["shape"][e.params["dimension"]] for e in program.eqns if e.primitive.name == "iota"]
    segments = [e.outvars[0].aval.shape[0] for e in program.eqns if e.primitive.name.startswith("scatter")]
    assert counted and segments and max(counted + segments) <= 2**31
