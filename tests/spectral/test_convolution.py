"""Convolutions and correlations of sharded arrays, against direct sums."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from marks import slow_rows
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives


class Case(NamedTuple):
    """Two arrays on a mesh, and the axes to convolve along."""

    mesh: tuple[int, ...]
    spec: P
    a: tuple[int, ...]
    b: tuple[int, ...]
    kind: AxisType
    axes: tuple[int, ...] | None = None


CASES = {
    "slab": Case((8,), P("x"), (16, 9), (16, 9), AxisType.Auto),
    "pencil": Case((2, 4), P("x", "y"), (6, 8, 7), (3, 4, 1), AxisType.Explicit),
    "block": Case((2, 2, 2), P("x", "y", "z"), (4, 6, 10), (3, 2, 5), AxisType.Auto),
    "some axes": Case((2, 2, 2), P("x", ("z", "y")), (6, 8, 5), (6, 5, 5), AxisType.Explicit, (2, 1)),
    "line": Case((8,), P("x"), (24,), (7,), AxisType.Auto),
    "one device": Case((), P(), (5, 7), (2, 7), AxisType.Auto),
}


def _put(x: np.ndarray, case: Case) -> Array:
    if not case.mesh:
        return jnp.asarray(x)
    return jax.device_put(x, NamedSharding(mesh(case.mesh, case.kind), case.spec if x.shape == case.a else P()))


def _truth(a: np.ndarray, b: np.ndarray, axes: tuple[int, ...], mode: str, correlates: bool) -> np.ndarray:
    """Term by term: a moved by every position of b along the axes, times what b has there."""
    full, sizes = a.astype(np.result_type(a, "float64")), [b.shape[d] for d in axes]
    if mode == "same":
        full = np.pad(full, [(b.shape[d], b.shape[d]) if d in axes else (0, 0) for d in range(a.ndim)])
    found = np.zeros(full.shape, np.result_type(full, b))
    for at in np.ndindex(*sizes):
        taken = dict(zip(axes, at, strict=True))
        index = tuple(slice(taken[d], taken[d] + 1) if d in taken else slice(None) for d in range(a.ndim))
        term, sign = (b[index].conj(), -1) if correlates else (b[index], 1)
        found += np.roll(full, [sign * n for n in at], axes) * term
    if mode == "wrap":
        return found
    first = {d: b.shape[d] + (-(b.shape[d] // 2) if correlates else (b.shape[d] - 1) // 2) for d in axes}
    return found[tuple(slice(first.get(d, 0), first.get(d, 0) + n) for d, n in enumerate(a.shape))]


def _in_turn(name: str, mode: str, what: str) -> bool:
    """Both modes and both functions for every case: of complex numbers for one case, of real ones for the next."""
    return ((mode == "wrap") == (what == "convolve")) == (list(CASES).index(name) % 2 == 0)


@pytest.mark.quick(16)
@pytest.mark.parametrize(
    ("name", "mode", "what"), slow_rows(_in_turn, CASES, ("wrap", "same"), ("convolve", "correlate"))
)
def test_direct_sums(name: str, mode: str, what: str) -> None:
    """Catches a middle off by one, a wrap into it, a conjugate too many, a wrong axis, and a lost sharding."""
    case, dtype = CASES[name], "complex64" if (mode == "wrap") == (what == "convolve") else "float32"
    axes = case.axes or tuple(range(len(case.a)))
    a, b = noise(case.a, dtype), noise(case.b, dtype, 1)
    first = _put(a, case)
    found = getattr(mf, what)(first, _put(b, case), axes=case.axes, mode=mode)
    assert found.dtype == np.dtype(dtype) and found.sharding.is_equivalent_to(first.sharding, a.ndim)
    assert error(found, _truth(a, b, axes, mode, what == "correlate")) <= 1e-6


@pytest.mark.quick(0, 2, 3, 6)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("m", [1, 2, 3, 5, 8])
def test_every_small_length_in_double_precision(x64: None, n: int, m: int) -> None:
    """Catches a transform one point too short, and float32 in a phase."""
    a, b = noise((n, 2), "float64", n), noise((min(n, m), 2), "complex128", m)
    for mode in ("wrap", "same"):
        for what in ("convolve", "correlate"):
            found = getattr(mf, what)(a, b, axes=(0,), mode=mode)
            np.testing.assert_allclose(found, _truth(a, b, (0,), mode, what == "correlate"), atol=1e-13)


@pytest.mark.quick(0)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_compiled_text_has_three_walks_of_half_the_traffic(small: bool, kind: AxisType) -> None:
    """Catches natural order, and a gather, of the spectra or of the array that is padded."""
    case = CASES["block"]._replace(kind=kind)
    a, b = (_put(noise(shape, "float32"), case) for shape in (case.a, case.b if small else case.a))
    devices = mesh(case.mesh, kind)
    plan = mf.plan(case.a, mesh=devices.abstract_mesh, spec=case.spec, kind="rfft", order="any")
    spec = case.spec if kind == AxisType.Auto else None
    run = jax.jit(lambda a, b: mf.convolve(a, b, spec=spec))
    assert collectives(run.lower(a, b).compile()) == {name: 3 * count for name, count in plan.collectives.items()}
    assert error(run(a, b), np.asarray(mf.convolve(a, b))) <= 1e-6


@pytest.mark.quick(3)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_gradients_in_both(x64: None, small: bool, kind: AxisType) -> None:
    """Catches a wrong gradient: of a function quadratic in one array, finite differences are exact."""
    case = CASES["block"]._replace(kind=kind)
    shapes = (case.a, case.b if small else case.a)
    x, t = ([_put(noise(shape, "float64", seed + n), case) for n, shape in enumerate(shapes)] for seed in (0, 2))
    spec = case.spec if kind == AxisType.Auto else None

    @jax.jit
    def loss(a: Array, b: Array) -> Array:
        return jnp.sum(mf.correlate(a, b, mode="same", spec=spec) ** 2 * np.arange(1.0, case.a[2] + 1)[None, None])

    gradients = jax.jit(jax.grad(loss, (0, 1)))(*x)
    for place, gradient in enumerate(gradients):
        ahead, behind = ([x[n] + float(sign * (n == place)) * t[n] for n in (0, 1)] for sign in (1, -1))
        slope = float(jnp.sum(gradient * t[place]))
        assert slope == pytest.approx(float(loss(*ahead) - loss(*behind)) / 2, rel=1e-10)


def test_arrays_of_every_kind() -> None:
    """Catches a second array with another sharding, planes that return joined, and a type that is not promoted."""
    case = CASES["block"]
    a, b = noise(case.a), noise(case.a, "float32", 1)
    first, truth = _put(a, case), _truth(a, b, (0, 1, 2), "wrap", False)
    for second in (b, b.tolist(), jax.device_put(b, jax.devices()[3]), _put(b, case)):
        assert error(mf.convolve(first, second), truth) <= 1e-6
    re, im = mf.convolve((_put(a.real, case), _put(a.imag, case)), b)
    assert error(re, truth.real) <= 1e-6 and error(im, truth.imag) <= 1e-6
    assert error(jax.jit(lambda x: mf.convolve(x, b, spec=case.spec))(first), truth) <= 1e-6
    counts = mf.convolve(np.arange(4), np.ones(2, "int8"))
    assert counts.dtype == np.float32 and error(counts, np.array([3, 1, 3, 5])) <= 1e-6


@pytest.mark.quick(0)
@pytest.mark.parametrize("shape", [(3, 2), (8, 6)])
def test_eager_gradients_beside_an_array_on_the_host(shape: tuple[int, ...]) -> None:
    """Catches a second array that must be put on a mesh, although eager `grad` hides the devices."""
    x, b, t = noise((8, 6), "float32"), noise(shape, "float32", 1), noise((8, 6), "float32", 2).astype(float)
    a = jax.device_put(x, NamedSharding(mesh((2, 2)), P("x", "y")))
    gradient = jax.grad(lambda a: jnp.sum(mf.convolve(a, b, spec=P("x", "y")) * t.astype("float32")))(a)
    turned = np.fft.ifftn(np.fft.fftn(t) * np.conj(np.fft.fftn(b.astype(float), t.shape, (0, 1))))
    assert error(gradient, turned.real) <= 1e-6


@pytest.mark.parametrize("shape", [(3, 2), (8, 6)])
def test_eager_tangents_of_both_under_auto_axes(shape: tuple[int, ...]) -> None:
    """Catches a second array on one device that is to be put on the mesh by a constraint, which JAX refuses eagerly."""
    x, b, over = noise((8, 6), "float32"), noise(shape, "float32", 1), mesh((2, 2))
    a = jax.device_put(x, NamedSharding(over, P("x", "y")))
    convolved, second = partial(mf.convolve, spec=P("x", "y")), jnp.asarray(b)
    product = np.fft.fftn(x.astype(float)) * np.fft.fftn(b.astype(float), x.shape, (0, 1))
    for context in (contextlib.nullcontext, partial(jax.set_mesh, over)):
        with context():
            _, moved = jax.jvp(convolved, (a, second), (a, second))
        assert error(moved, 2 * np.fft.ifftn(product).real) <= 1e-6


@pytest.mark.parametrize("n", [8, 7])
def test_gradients_inside_jit_by_an_array_outside(n: int) -> None:
    """Catches a gradient that is sent back to the one device of a closed-over array, which a program cannot do."""
    x, b, t = noise((n, 6), "float32"), jnp.asarray(noise((3, 2), "float32", 1)), noise((3, 2), "float32", 2)
    a = mf.shard(x, mesh((2, 2)), P("x", "y"))

    def squares(b: Array) -> Array:
        return (abs(mf.convolve(a, b)) ** 2).sum()

    moved = jax.jit(lambda t: jax.jvp(jax.grad(squares), (b,), (t,))[1])(t)
    twice = (
        2 * np.fft.ifftn(np.fft.fftn(t.astype(float), x.shape, (0, 1)) * abs(np.fft.fftn(x.astype(float))) ** 2).real
    )
    assert error(moved, twice[:3, :2]) <= 1e-6


def _cut(shape: tuple[int, ...], *axes: str) -> Array:
    return jax.device_put(noise(shape), NamedSharding(mesh((2, 2, 2)), P(*(axes or "xyz"))))


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "mode": (
        lambda: mf.correlate(np.ones(4), np.ones(4), mode="causal"),
        ValueError,
        "'causal' is unknown: use 'wrap' or",
    ),
    "larger": (lambda: mf.convolve(np.ones(4), np.ones(5)), ValueError, "b has 5 samples along axis 0, a 4: .*at most"),
    "lacks the axis": (
        lambda: mf.convolve(np.ones((4, 4)), np.ones(4), axes=(0,)),
        ValueError,
        "no axis 0: give it 2 dimensions",
    ),
    "empty": (lambda: mf.convolve(np.ones(4), np.ones(0)), ValueError, "b has 0 samples along axis 0"),
    "rank": (lambda: mf.correlate(np.ones(4), np.ones((4, 4))), ValueError, "a has shape .* as many dimensions"),
    "other axis": (
        lambda: mf.convolve(np.ones((4, 4)), np.ones((2, 2)), axes=(0,)),
        ValueError,
        "axis 1, a 4: give as many, or one for all",
    ),
    "axis twice": (lambda: mf.convolve(np.ones((4, 4)), np.ones((2, 2)), axes=(0, 0)), ValueError, "given twice"),
    "small and cut otherwise": (
        lambda: mf.convolve(_cut((4, 4, 4)), _cut((2, 2, 2), *"zyx")),
        ValueError,
        "b as .* give b to every device",
    ),
    "cut otherwise": (
        lambda: mf.convolve(_cut((4, 4, 4)), _cut((4, 4, 4), *"zyx")),
        ValueError,
        "a is sharded as .*, b as .*: shard them alike",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_wrong_calls_are_refused_with_the_value_and_the_remedy(case: str) -> None:
    """Catches a wrong call that passes, or an error that leaves the reader guessing."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_eager_derivatives_of_padded_arrays() -> None:
    """Catches a mask made eagerly, for which JAX knows no devices where a derivative shows a described mesh alone."""
    x, t = noise((7, 9), "float32"), noise((7, 9), "float32", 1)
    a, change = (mf.shard(each, mesh((2, 4), AxisType.Explicit), P("x", "y")) for each in (x, t))
    _, moved = jax.jvp(lambda a: mf.convolve(a, a), (a,), (change,))
    truth = 2 * np.fft.ifft2(np.fft.fft2(x.astype(float)) * np.fft.fft2(t)).real
    assert error(mf.gather(moved), truth) <= 1e-6


class Long(NamedTuple):
    """An array, and a kernel that is broadcast to it, shorter or longer, cut or on every device."""

    mesh: tuple[int, ...]
    spec: P
    a: tuple[int, ...]
    b: tuple[int, ...]
    b_spec: P
    mode: str
    kind: AxisType = AxisType.Explicit
    axes: tuple[int, ...] = (-1,)
    sends: int = 3  # all-to-alls


CHANNELS = Long((2, 4), P("x", None, "y"), (2, 5, 32), (5, 32), P(None, "y"), "causal")
LONG = {
    "channels": CHANNELS,
    "channels, Auto": CHANNELS._replace(kind=AxisType.Auto),
    "on every device": CHANNELS._replace(b=(5, 1), b_spec=P(), sends=2),
    "longer": Long((8,), P(None, None, "x"), (3, 4, 24), (3, 1, 40), P(None, None, "x"), "causal"),
    "one line": Long((8,), P(None, "x"), (4, 24), (24,), P("x"), "causal", sends=5),  # a ring: one line is not moved
    "full": Long((8,), P(None, None, "x"), (8, 5, 40), (7,), P(), "full", sends=2),
    "valid": Long((8,), P(None, "x"), (16, 8), (16, 13), P(), "valid", sends=2),
    "batch": Long((8,), P("x"), (16, 13), (5,), P(), "full", AxisType.Auto, sends=0),
    "planes": Long((2, 4), P(None, "x", "y"), (3, 8, 16), (3, 5), P(), "full", axes=(1, 2), sends=7),
}


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_one_padded_line_for_all(kind: AxisType) -> None:
    """Catches a dimension of one element taken at its stored length, and gradients that reach its padding."""
    over, weights = mesh((8,), kind), noise((5, 6), "float32", 2)
    x, b = noise((5, 6), "float32"), noise((3, 1), "float32", 1)
    a, line = (mf.shard(one, over, P(None, "x")) for one in (x, b))
    for found in (mf.convolve(a, line, axes=(0,)), jax.jit(partial(mf.convolve, axes=(0,)))(a, line)):
        assert error(mf.gather(found), np.asarray(mf.convolve(x, b, axes=(0,)))) <= 1e-6
    with jax.set_mesh(over):
        gradient = jax.jit(jax.grad(lambda line: (mf.convolve(a, line, axes=(0,)) * weights).sum()))(line)
    truth = jax.grad(lambda b: (mf.convolve(x, b, axes=(0,)) * weights).sum())(b)
    assert error(gradient.stored, np.pad(truth, [(0, 0), (0, 7)])) <= 1e-6


def test_what_is_said_of_a_padded_array_cut_otherwise_works() -> None:
    """Catches advice for jax.Arrays: `device_put` leaves a padded array cut as it was."""
    over, (x, b) = mesh((2, 4)), (noise((5, 6), "float32", seed) for seed in (0, 1))
    a, other = mf.shard(x, over, P("x", "y")), mf.shard(b, over, P("y", "x"))
    with pytest.raises(ValueError, match=r"shard them alike, or give b to every device, mf\.gather\(b\)$"):
        mf.convolve(a, other)
    for alike in (mf.gather(other), mf.shard(other, over, P("x", "y"))):
        assert error(mf.gather(mf.convolve(a, alike)), np.asarray(mf.convolve(x, b))) <= 1e-6


def _linear(a: np.ndarray, b: np.ndarray, axes: tuple[int, ...], mode: str) -> np.ndarray:
    """Term by term: a moved by every position of b along the axes, times what b has there."""
    b, axes = b.reshape((1,) * (a.ndim - b.ndim) + b.shape), tuple(d % a.ndim for d in axes)
    pads = [(0, b.shape[d] - 1 if d in axes else 0) for d in range(a.ndim)]
    wide = np.pad(a.astype(float), pads)
    found = np.zeros(wide.shape)
    for at in np.ndindex(*(b.shape[d] for d in axes)):
        taken = dict(zip(axes, at, strict=True))
        term = b[tuple(slice(taken[d], taken[d] + 1) if d in taken else slice(None) for d in range(a.ndim))]
        found += np.roll(wide, at, axes) * term
    for d in axes:
        n, m = a.shape[d], b.shape[d]
        first, size = {"causal": (0, n), "full": (0, n + m - 1), "valid": (min(n, m) - 1, abs(n - m) + 1)}[mode]
        found = np.take(found, range(first, first + size), d)
    return found


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", LONG)
def test_long_kernels_and_their_gradients(name: str) -> None:
    """Catches a kernel cut otherwise than the spectrum that it multiplies, what wraps around, gradients that are not
    summed over a batch, and a gather.
    """
    case = LONG[name]
    over, shapes = mesh(case.mesh, case.kind), (case.a, case.b)
    host, moved = ([noise(shape, "float32", seed + n) for n, shape in enumerate(shapes)] for seed in (0, 2))
    x = [jax.device_put(v, NamedSharding(over, s)) for v, s in zip(host, (case.spec, case.b_spec), strict=True)]
    truth = _linear(host[0], host[1], case.axes, case.mode)
    weights = mf.shard(noise(truth.shape, "float32", 4), over, case.spec)

    def convolved(a: Array, b: Array) -> Any:
        return mf.convolve(a, b, axes=case.axes, mode=case.mode)

    with jax.set_mesh(over):
        run = jax.jit(convolved)
        counts = collectives(run.lower(*x).compile())
        found, gradients = run(*x), jax.jit(jax.grad(lambda *x: (convolved(*x) * weights).sum(), (0, 1)))(*x)
    assert counts.keys() <= {"all-to-all", "collective-permute"} and counts.get("all-to-all", 0) == case.sends
    assert error(mf.gather(found), truth) <= 1e-6 and isinstance(found, mf.PaddedArray | Array)
    for n, gradient in enumerate(gradients):
        first, second = (moved[k] if k == n else host[k] for k in (0, 1))
        slope = (_linear(first, second, case.axes, case.mode) * mf.gather(weights)).sum()
        assert gradient.shape == shapes[n] and gradient.sharding.is_equivalent_to(x[n].sharding, len(shapes[n]))
        assert (mf.gather(gradient) * moved[n].astype(float)).sum() == pytest.approx(slope, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_batches_of_kernels_and_blocks_of_them(kind: AxisType) -> None:
    """Catches a batch that is taken for a dimension to broadcast, and a block of a kernel for a whole one."""
    case = CHANNELS._replace(kind=kind)
    over, kernels = mesh(case.mesh, kind), noise((3, *case.b), "float32", 1)
    x = noise(case.a, "float32")
    a = jax.device_put(x, NamedSharding(over, case.spec))
    many = jax.device_put(kernels, NamedSharding(over, P(None, None, "y")))
    convolved = partial(mf.convolve, axes=-1, mode="causal")
    truth = [_linear(x, kernel, (2,), "causal") for kernel in kernels]
    assert error(jax.jit(jax.vmap(convolved, (None, 0)))(a, many), np.stack(truth)) <= 1e-6
    for whole in (False, True):
        specs = (case.spec, P() if whole else case.b_spec)
        body = jax.shard_map(partial(convolved, spec=case.spec), mesh=over, in_specs=specs, out_specs=case.spec)
        kernel = jax.device_put(kernels[0], NamedSharding(over, specs[1]))
        assert error(jax.jit(body)(a, kernel), truth[0]) <= 1e-6
