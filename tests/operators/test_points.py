"""Points of the z-plane: every constructor, the error of one dimension, and refusals."""

import decimal
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import PartitionSpec as P
from marks import slow_but
from reference import error, in_turns, mesh, noise, powers

import meshfft as mf
from meshfft import Points

pytestmark = pytest.mark.optimised

Loose: Any = Points  # its annotations name no lists
RNG = np.random.default_rng()
ANGLES = np.concatenate([[0.0, 0.5, -0.25, 1e-9, -7.3, 123.456], RNG.uniform(-1, 1, 10)])
RADII = np.exp(RNG.uniform(-0.2, 0.2, 16))


def transformed(x: np.ndarray, points: Points) -> np.ndarray:
    """The KDFT of the first dimension, cut over eight devices."""
    y = mf.kdftn(mf.shard(x, mesh((8,)), P("x")), points, axes=[0])
    assert y.sharding.is_equivalent_to(jax.sharding.NamedSharding(mesh((8,)), P("x")), y.ndim)
    return np.asarray(y)


def dense(x: np.ndarray, points: Points, matrix: np.ndarray, within: float = 4e-7) -> None:
    """Holds the transform against a matrix."""
    assert points.size == len(matrix)
    assert error(transformed(x, points), matrix @ x.astype(complex)) <= within


@pytest.mark.quick(9, 10, 11)
@pytest.mark.parametrize("n", [8, 16, 40])
@pytest.mark.parametrize("kind", ["turns", "radians", "z", "z on the circle"])
def test_points_of_every_kind(n: int, kind: str) -> None:
    """Catches a wrong sign or unit, an inverted radius, and fewer, equally many or more points than inputs."""
    z = (RADII if kind == "z" else 1.0) * np.exp(2j * np.pi * ANGLES)
    matrices: dict[str, tuple[Callable[[Any], Points], np.ndarray, np.ndarray]] = {
        "turns": (Points.turns, ANGLES, powers(ANGLES, None, n)),
        "radians": (Points.radians, ANGLES, powers(in_turns(ANGLES), None, n)),
        "z": (Points.z, z, z[:, None] ** -np.arange(n)),
        "z on the circle": (Points.z, z, z[:, None] ** -np.arange(n)),
    }
    make, values, matrix = matrices[kind]
    x = noise((n, 3), seed=n)
    dense(x, make(values), matrix)
    dense(x, make(values.tolist()), matrix)
    rounded = values.astype(np.complex64 if "z" in kind else np.float32)
    np.testing.assert_array_equal(make(jnp.asarray(rounded)).in_turns, make(rounded).in_turns)


@pytest.mark.quick(8, 21, 22, 26)
@pytest.mark.parametrize("m", [1, 3, 8, 16, 24, 96])
@pytest.mark.parametrize("n", [1, 8, 13, 16, 40])
def test_uniform_points_alias(m: int, n: int) -> None:
    """Catches inputs beyond m that are cropped instead of folded, and points that stand at k / n instead of k / m."""
    turns = np.outer(np.arange(m), np.arange(n)) % m / m
    plan = mf.plan((n, 3), mesh=mesh((8,)), spec=P("x"), axes=[0], points=Points.uniform(m))
    x = noise((n, 3), seed=m)
    y = mf.gather(plan(x))
    assert y.shape == (m, 3) and error(y, np.exp(-2j * np.pi * turns) @ x.astype(complex)) <= 4e-7


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("f0", "f1", "m"), [(0.1, 0.2, 16), (-0.3, 0.4, 8), (0.7, 0.2, 64), (0, 1, 24), (3.25, 3.5, 8)]
)
def test_zoom(f0: float, f1: float, m: int) -> None:
    """Catches an end taken in, a step of the wrong sign, and a step that is rounded before it is multiplied."""
    turns = f0 + (f1 - f0) * np.arange(m) / m
    points = Points.zoom(f0, f1, m)
    np.testing.assert_allclose(points.in_turns, turns, rtol=0, atol=4e-16 * max(1, abs(f0)))
    dense(noise((32, 3), seed=m), points, powers(turns, None, 32))


def test_zoom_far_from_zero_keeps_its_steps() -> None:
    """Catches a line of points by repeated addition, or in float32: the last of 2^20 would be 1e-4 of a step off."""
    f0, f1, m = 0.123456789, 0.123456789 + 2.0**-20, 2**20
    exact = f0 + (np.arange(m) * np.longdouble(f1 - f0) / m)
    assert np.abs(Points.zoom(f0, f1, m).in_turns - exact).max() <= 2.0**-54
    first, last = np.float32(0.1), jax.numpy.float32(0.3)
    points = Points.zoom(float(first), float(last), 1000)
    assert np.array_equal(Points.zoom(first, last, 1000).in_turns, points.in_turns), "steps in their own type"  # type: ignore[arg-type]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("a", "w"),
    [(1, np.exp(-2j * np.pi / 16)), (0.99 * np.exp(0.3j), 1.002 * np.exp(-0.1j)), (1j, 0.999), (-1, np.exp(3j))],
)
def test_chirp(a: complex, w: complex) -> None:
    """Catches a spiral that rotates or grows in the wrong direction: z_k = a w^-k."""
    z = a * np.power(complex(w), -np.arange(24))
    points = Points.chirp(a, w, 24)
    dense(noise((40, 3), seed=4), points, z[:, None] ** -np.arange(40.0))


@pytest.mark.quick(0)
@pytest.mark.parametrize("off", [False, True])
@pytest.mark.parametrize("n", slow_but([64, 4096, 65_536], [64, 1024, 4096, 16_384, 65_536]))
def test_error_of_one_dimension_does_not_grow(n: int, off: bool) -> None:
    """Catches a phase or a magnitude that loses digits with n: float32 angles would lose 2e-4 at n = 4096."""
    m, drawn = max(16, min(n, 2**19 // n)), np.random.default_rng(n)
    turns, logs = drawn.random(m), drawn.uniform(-80, 80, m) / (n - 1)
    x = noise((n, 2), seed=n)
    if not off:
        return dense(x, Points.turns(turns), powers(turns, None, n))
    z = np.exp(logs + 2j * np.pi * turns)
    matrix = powers(in_turns(np.angle(z)), np.log(np.abs(z)), n)
    rows = np.linalg.norm(matrix, axis=1)  # or the largest row, one sum that may nearly cancel, would decide
    y, truth = transformed(x, Points.z(z)) / rows[:, None], matrix @ x.astype(complex) / rows[:, None]
    assert error(y, truth) <= 4e-7


@pytest.mark.more
@pytest.mark.parametrize("n", [4096, 65_536])
def test_rounded_points_lose_three_digits_where_points_do_not(n: int) -> None:
    """Catches points rounded to the type of the array: NumPy's Vandermonde matrix is the witness."""
    turns = RNG.random(16)
    x, truth = noise((n, 2), seed=n), powers(turns, None, n)
    rounded = np.exp(2j * np.pi * turns).astype(np.complex64)
    product = np.vander(1 / rounded, n, increasing=True).astype(np.complex64) @ x
    mine = error(transformed(x, Points.turns(turns)), truth @ x.astype(complex))
    theirs = error(product, truth @ x.astype(complex))
    assert mine <= 4e-7 and theirs >= 1e-5 * (n / 4096), (mine, theirs)


@pytest.mark.more
@pytest.mark.parametrize("radius", [0.99, 1.01])
def test_off_the_circle_where_a_chirp_overflows(radius: float) -> None:
    """Catches magnitudes by repeated products or by Bluestein's w^(n^2 / 2), which leaves complex64 here."""
    n, m = 1024, 16
    w = radius ** (1 / m) * np.exp(-2j * np.pi * 0.003)
    a = np.exp(0.7j)
    exponents = np.arange(n) ** 2 / 2
    with np.errstate(all="ignore"):
        chirp = np.power(np.complex64(w), exponents.astype(np.float32))
        naive = np.stack([chirp, 1 / chirp])
    assert not np.isfinite(naive).all() or not naive.all()
    points = Points.chirp(a, w, m)
    k = np.arange(m)
    turns = [t - j * s for j, t, s in zip(k, *(np.repeat(np.angle(v) / (2 * np.pi), m) for v in (a, w)), strict=True)]
    logs = -k * np.log(np.abs(np.longdouble(abs(w))))
    dense(noise((n, 3), seed=7), points, powers(np.array(turns), logs, n))
    circle = Points.z(radius * np.exp(2j * np.pi * k / m))
    dense(noise((n, 3), seed=8), circle, powers(in_turns(circle.angle), circle.log_radius, n))


@pytest.mark.more
@pytest.mark.parametrize(("n", "off", "bound"), [(64, False, 2e-15), (1024, False, 2e-15), (64, True, 4e-15)])
def test_double_precision(x64: None, n: int, off: bool, bound: float) -> None:
    """Catches float32 in the float64 path, or points that kept only the digits of n times an angle."""
    turns, logs = RNG.random(16), RNG.uniform(-300, 300, 16) / (n - 1)
    x = noise((n, 2), "complex128", n)
    z = np.exp(logs + 2j * np.pi * turns)
    matrix = exact_powers(z, n) if off else powers(turns, None, n)
    rows = np.linalg.norm(matrix, axis=1)[:, None]
    y = transformed(x, Points.z(z) if off else Points.turns(turns))
    assert y.dtype == np.complex128 and error(y / rows, matrix @ x / rows) <= bound


def exact_powers(z: np.ndarray, n: int) -> np.ndarray:
    """z_k^-j for j < n of complex numbers as they are, by products of 60 digits."""
    rows = []
    with decimal.localcontext(prec=60):
        for point in z:
            x, y = decimal.Decimal(point.real), decimal.Decimal(point.imag)
            square, re, im, row = x * x + y * y, decimal.Decimal(1), decimal.Decimal(0), []
            x, y = x / square, -y / square
            for _ in range(n):
                row.append(complex(re, im))
                re, im = re * x - im * y, re * y + im * x
            rows.append(row)
    return np.array(rows)


GROWN = np.exp(np.random.default_rng(3).uniform(-300, 300, 6) / 2047)
TURNED = np.exp(2j * np.pi * np.random.default_rng(4).random(6))
A, W = 1.01 - 0.2j, 1.0003 + 0.001j


@pytest.mark.parametrize(
    ("points", "z"),
    [
        (Points.z(GROWN * TURNED), GROWN * TURNED),
        (Points.turns(np.arange(6) / 4, GROWN), GROWN * np.array([1, 1j, -1, -1j, 1, 1j])),
        (Points.chirp(A, W, 6), None),
    ],
    ids=["z", "radii", "chirp"],
)
def test_logarithms_lose_nothing(x64: None, points: Points, z: np.ndarray | None) -> None:
    """Catches logarithms in one float64, which lost 4e-13 here where 8e-16 was printed."""
    n = 2048
    if z is None:
        of_w = exact_powers(np.array([W]), 6 * n)[0]
        matrix = np.stack([exact_powers(np.array([A]), n)[0] / of_w[k * np.arange(n)] for k in range(6)])
    else:
        matrix = exact_powers(z, n)
    x, rows = noise((n,), "complex128", n), np.linalg.norm(matrix, axis=1)
    truth = (matrix * x.astype(np.clongdouble)).sum(1)  # in float64 the sum itself loses 2e-15
    plan = mf.plan((n,), points=[points], dtype=np.complex128)
    assert error(np.asarray(plan(x)) / rows, truth / rows) <= plan.error


@pytest.mark.more
@pytest.mark.parametrize(("worst", "sign"), [(1.2, 1), (0.8, -1)])
def test_the_guard_names_the_worst_point(worst: float, sign: int) -> None:
    """Catches powers that silently leave the type's range, for radii below one as well, and a message without a
    remedy."""
    z = np.exp(2j * np.pi * RNG.random(8)) * np.exp(RNG.uniform(-0.05, 0.05, 8))
    z[5] *= worst / abs(z[5])
    x = jnp.asarray(noise((1000,)))
    limit = np.exp(np.log(np.finfo(np.float32).max) / 999)
    with pytest.raises(ValueError, match=r"points of axis 0: point 5 has radius") as refused:
        mf.kdftn(x, Points.z(z))
    text = str(refused.value)
    for part in (f"radius {worst:.6g}", "float32", "999", f"between {1 / limit:.6g} and {limit:.6g}", "float64"):
        assert part in text, text
    with pytest.raises(ValueError, match="point 5"):
        mf.plan((4, 1000), axes=[1], points=Points.z(z))
    with jax.enable_x64(True):
        assert np.isfinite(mf.kdftn(x, Points.z(z), precision="float64")).all()
    z[5] = limit ** (sign * 0.95)
    dense(noise((1000, 1)), Points.z(z), powers(in_turns(np.angle(z)), np.log(np.abs(z)), 1000), 6e-7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Loose.turns([]), r"shape \(0,\): give a sequence of at least one"),
        (lambda: Loose.z([]), r"shape \(0,\): give a sequence of at least one"),
        (lambda: Loose.turns(0.5), r"shape \(\): give a sequence"),
        (lambda: Loose.radians([[0.1], [0.2]]), r"shape \(2, 1\)"),
        (lambda: Loose.z([[1j]]), r"shape \(1, 1\)"),
        (lambda: Loose.turns([0, 1, np.nan]), "point 2 is not finite"),
        (lambda: Loose.radians([0, np.inf]), "point 1 is not finite"),
        (lambda: Loose.z([1, np.inf]), "point 1 is not finite"),
        (lambda: Loose.z([np.nan, 1]), "point 0 is not finite"),
        (lambda: Loose.z([1, 1j, 0]), "point 2 is z = 0.*drop it"),
        (lambda: Loose.zoom(0.0, np.nan, 3), "not finite"),
        (lambda: Loose.zoom(0.0, 0.5, 0), "m = 0: give the number of points"),
        (lambda: Loose.zoom(0.0, 0.5, 2.5), r"m = 2\.5: give the number of points"),
        (lambda: Loose.chirp(0, 1, 3), "a = 0.*neither may be 0"),
        (lambda: Loose.chirp(1, 0, 3), "w = 0: neither may be 0"),
        (lambda: Loose.chirp(1, 1j, -1), "m = -1: give the number of points"),
        (lambda: Loose.uniform(0), "at least 1"),
        (lambda: Loose.uniform(1.5), "at least 1"),
    ],
)
def test_values_that_are_no_points_are_refused(make: Callable[[], Points], message: str) -> None:
    """Catches a point that would make NaN of the whole transform, or an error from deep inside."""
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("make", [Points.turns, Points.radians, Points.z])
def test_types_that_are_no_points_are_refused(make: Callable[[Any], Points]) -> None:
    """Catches imaginary parts dropped silently, text and objects, on the host and traced."""
    for values in (["a"], "text", [None]):
        with pytest.raises(TypeError, match="give real numbers"):
            make(values)
    if make != Points.z:
        with pytest.raises(TypeError, match="complex128: give real numbers"):
            make([1j])
        with pytest.raises(TypeError, match="traced complex64: give floats"):
            jax.eval_shape(lambda v: make(v).in_turns, jnp.ones(3, jnp.complex64))
    with pytest.raises(TypeError, match="traced int32: give floats"):
        jax.eval_shape(lambda v: make(v).in_turns, jnp.ones(3, jnp.int32))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_narrow_floats_are_points(dtype: Any) -> None:
    """Catches digits taken from float16, where 2^16 is infinite, and a type refused on the host alone."""
    x, t, r = noise((24,)), jnp.linspace(0, 0.9, 9, dtype=dtype), jnp.full(9, 1.02, dtype)

    def run(t: Any, r: Any) -> Any:
        return mf.kdftn(x, Points.turns(t, r))

    wanted = powers(np.asarray(t, float), np.log(np.asarray(r, float)), 24) @ x
    assert error(run(t, r), wanted) <= 1e-6 and error(jax.jit(run)(t, r), wanted) <= 1e-6
    assert repr(Points.zoom(t[1], t[8], 9)) == repr(Points.zoom(float(t[1]), float(t[8]), 9))
    lines: list[Any] = [lambda t: Points.zoom(t[1], t[8], 9), lambda t: Points.chirp(t[1], t[2], 9)]
    for make in (Points.turns, Points.radians, Points.z, *lines):
        assert {leaf.dtype for leaf in jax.tree.leaves(jax.eval_shape(make, t))} == {np.dtype("float32")}


def test_points_that_do_not_fit_the_axes_are_refused() -> None:
    """Catches plain numbers taken for points, and a sequence of the wrong length."""
    x, points = jnp.ones((4, 4)), Points.uniform(4)
    for given, message in (([0.1, 0.2], "points has a float"), (3, "points is "), ([np.ones(4), None], "ndarray")):
        with pytest.raises(TypeError, match=message):
            mf.kdftn(x, given)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=message):
            mf.plan((4, 4), points=given)  # type: ignore[arg-type]
    for few in (points, [points], [points] * 3):
        with pytest.raises(ValueError, match=r"entries for 2 axes: give one for each axis"):
            mf.kdftn(x, few)
    for option in ({"s": (4, 4)}, {"inverse": True}):
        with pytest.raises(ValueError, match="points cannot go with s, modes, kind or inverse"):
            mf.plan((4, 4), points=[points, None], **option)


MADE = (
    Points.uniform(5),
    Points.turns(ANGLES),
    Points.radians(ANGLES),
    Points.z(RADII * np.exp(1j * ANGLES)),
    Points.zoom(0.1, 0.3, 8),
)


@pytest.mark.quick(0)
@pytest.mark.parametrize("points", MADE)
def test_points_pass_through_jit_and_grad(points: Points) -> None:
    """Catches a pytree that loses its unit, its size or its radius, and a gradient that is not one of points."""
    x = jnp.asarray(noise((12,)))

    def energy(points: Points) -> Array:
        return jnp.sum(jnp.abs(mf.kdftn(x, points)) ** 2)

    assert error(jax.jit(mf.kdftn)(x, points), np.asarray(mf.kdftn(x, points))) <= 4e-5  # angles rounded to float32
    slope = jax.grad(energy)(points)
    assert isinstance(slope, Points) and (slope.size, slope.unit) == (points.size, points.unit)
    shapes = [None if leaf is None else leaf.shape for leaf in (slope.angle, slope.log_radius)]
    assert shapes == [None if leaf is None else (points.size,) for leaf in (points.angle, points.log_radius)]
    leaves, tree = jax.tree.flatten(points)
    assert jax.tree.unflatten(tree, leaves) == points


def test_points_compare_and_hash_by_value() -> None:
    """Catches a cache that takes one set of points for another: by size, unit, radius or a last digit."""
    again = (
        Points.uniform(5),
        Points.turns(ANGLES.copy()),
        Points.radians(ANGLES.copy()),
        Points.z(RADII * np.exp(1j * ANGLES)),
        Points.zoom(0.1, 0.3, 8),
    )
    for i, a in enumerate(MADE):
        for j, b in enumerate(again):
            assert (a == b) == (i == j) and (hash(a) == hash(b)) == (i == j)
    assert Loose.turns([0.1]) != Loose.turns([np.nextafter(0.1, 1)])
    assert Loose.turns([0.0, 0.5]) != Points.uniform(2) and Loose.turns([0.5]) != "text"
    assert mf.plan((8,), points=MADE[1]) == mf.plan((8,), points=again[1])
    assert hash(mf.plan((8,), points=MADE[1])) == hash(mf.plan((8,), points=again[1]))


def test_points_own_their_numbers() -> None:
    """Catches points that change with the array they were made of."""
    values = np.array([0.1, 0.2])
    points, key = Points.turns(values), hash(Points.turns(values))
    values[0] = 0.7
    assert hash(points) == key and points.in_turns[0] == 0.1


def test_one_radius_for_all_angles_keeps_float64() -> None:
    """Catches a radius that JAX holds in float32, because it is a number and no array."""
    points = Points.turns([0.1, 0.2], 1.1)
    assert points.known and points == Points.turns([0.1, 0.2], [1.1, 1.1])


def test_repr() -> None:
    """Catches a thousand digits in an error message, and two sets of points with the same repr."""
    texts = [repr(points) for points in MADE]
    low, high = f"{ANGLES.min():.6g}", f"{ANGLES.max():.6g}"
    assert texts[0] == "<Points: 5, uniform>"
    assert texts[1] == f"<Points: 16 on the unit circle, {low} to {high} turns>"
    assert texts[2] == f"<Points: 16 on the unit circle, {low} to {high} radians>"
    assert (
        texts[3].startswith("<Points: 16 off the unit circle, ")
        and f"log radii {np.log(RADII.min()):.6g} to" in texts[3]
    )
    assert texts[4] == "<Points: 8 on the unit circle, 0.1 to 0.275 turns>"
    traced = jax.jit(lambda points: [repr(points)] and len(repr(points)))(MADE[1])
    assert traced == len("<Points: 16 on the unit circle, unknown turns>")


TURNS = (np.array([0.1, 0.2, 0.35]), np.array([-0.2, 0.0, 0.1, 0.4]), np.array([0.3, 0.31]))


@pytest.mark.quick(2)
@pytest.mark.parametrize("indexing", ["ij", "xy"])
@pytest.mark.parametrize("many", [2, 3])
def test_a_raveled_grid_is_refused(many: int, indexing: Any) -> None:
    """Catches a raveled grid whose points are silently combined as if they were axes."""
    x, lines = np.ones((4,) * many), TURNS[:many]
    raveled = [mf.Points.turns(k.ravel()) for k in np.meshgrid(*lines, indexing=indexing)]
    words = (
        rf"the {3 * 4 * 2 ** (many - 2)} points of axes 0 and 1.* are a grid of 3 x 4.*, raveled: give each axis its"
    )
    for call in (lambda: mf.kdftn(x, raveled), lambda: mf.plan(x.shape, points=raveled)):
        with pytest.raises(ValueError, match=words + r".* scattered points.* mf.Scattered"):
            call()
    assert mf.kdftn(x, [mf.Points.turns(k) for k in lines]).shape == tuple(map(len, lines))


@pytest.mark.more
def test_points_that_repeat_but_are_no_raveled_grid_are_taken() -> None:
    """Catches a false alarm: points given twice, equal points for two axes, and grids of one point a side are legal."""
    a, b = np.array([0.1, 0.1, 0.2, 0.2]), np.array([0.3, 0.4, 0.3, 0.45])
    for pair in ((a, a), (a, b), (a, np.full(4, 0.3)), (np.full(1, 0.1), np.full(1, 0.2)), (a, b[:3])):
        assert mf.kdftn(np.ones((4, 4)), list(map(mf.Points.turns, pair))).shape == tuple(map(len, pair))


def test_scattered_points_are_told_from_a_grid() -> None:
    """Catches coordinates of scattered points refused without naming this transform and the right one."""
    k = np.random.default_rng(1).uniform(-0.5, 0.5, (5, 2))
    with pytest.raises(ValueError, match=r"shape \(5, 2\).* all combinations.* scattered points"):
        mf.Points.turns(k)
    with pytest.raises(TypeError, match=r"points is a ndarray.* all combinations.* scattered points"):
        mf.kdftn(np.ones((4, 4)), k)  # type: ignore[call-overload]
