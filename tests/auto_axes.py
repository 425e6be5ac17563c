"""The table of docs/inside.md: every function under every transformation, kind of axes and kind of array.

A cell is a program that is compiled and run: its numbers, and no gather or sum of data. Truth is a sum in float64 in
NumPy, or the same call on one device, which other tests hold against such a sum.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf

SHAPE, SPEC, AXES = (4, 12, 10), P("x", "y"), (0, 1, 2)
FEW = 64  # numbers: bins, or a predicate; more are data
POINTS = np.random.default_rng(7).uniform(-0.5, 0.5, (16, 3))
TURNS = np.random.default_rng(8).uniform(0, 1, 12)
WAVES = [2 * np.pi * np.fft.fftfreq(n) for n in SHAPE]
SQUARE = sum(k.reshape([-1 if d == dim else 1 for d in AXES]) ** 2 for dim, k in enumerate(WAVES))
ODD = np.where(np.arange(12) == 6, 0, WAVES[1])[:, None]
KERNEL, SCATTERED = noise((3, 5, 4), "float32", 3), mf.Scattered.turns(POINTS)
MATRICES = [noise((n, n), "float32", n) for n in SHAPE]
ALL = P(("x", "y"))


def put(x: np.ndarray, spec: P = SPEC, over: Mesh | None = None) -> Array:
    return jax.device_put(x, NamedSharding(over or mesh((2, 4), AxisType.Auto), spec))


def filtered(x: np.ndarray, factor: Any) -> np.ndarray:
    y = np.fft.ifftn(np.fft.fftn(x) * factor)
    return y if np.iscomplexobj(x) else y.real


def _at_turns(x: np.ndarray) -> np.ndarray:
    return np.einsum("bj,ijk->ibk", np.exp(-2j * np.pi * np.outer(TURNS, np.arange(12))), x)


def _at_points(x: np.ndarray) -> np.ndarray:
    first, second, third = (np.exp(-2j * np.pi * np.outer(POINTS[:, d], np.arange(SHAPE[d]))) for d in AXES)
    return np.einsum("pi,pj,pk,ijk->p", first, second, third, x)


def _adjoint(c: np.ndarray) -> np.ndarray:
    waves = (np.exp(2j * np.pi * np.outer(POINTS[:, d], np.arange(SHAPE[d]))) for d in AXES)
    return np.einsum("pi,pj,pk,p->ijk", *waves, c)


def _type3(c: np.ndarray) -> np.ndarray:
    return np.exp(-2j * np.pi * POINTS @ POINTS.T) @ c


def inverse_laplacian(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return filtered(x, np.where(SQUARE > 0, -1 / SQUARE, 0))


def _dct(x: np.ndarray) -> np.ndarray:
    for dim, n in enumerate(SHAPE):
        k = np.arange(n)
        x = np.moveaxis(np.tensordot(2 * np.cos(np.pi * np.outer(k, 2 * k + 1) / (2 * n)), x, (1, dim)), 0, dim)
    return x


def _smoothed(x: Array, **how: Any) -> Any:
    return mf.multiply_spectrum(x, lambda *waves: 1 / (1 + sum(k**2 for k in waves)), **how)


def _convolved(x: np.ndarray) -> np.ndarray:
    return filtered(x, np.fft.fftn(KERNEL, SHAPE, AXES))


class Row(NamedTuple):
    """A function of an array, linear or a square; the type, shape and spec of the array, and the result's spec."""

    function: Callable[..., Any]
    truth: Callable[[np.ndarray], np.ndarray] | None = None  # None: the same call on one device
    kind: str = "float32"
    shape: tuple[int, ...] = SHAPE
    start: P = SPEC
    end: P = SPEC
    limit: float = 2e-6


C = "complex64"
HALF = (4, 12, 6)
FUNCTIONS = {
    "fft": Row(lambda x, **how: mf.fft(x, axis=1, **how), lambda x: np.fft.fft(x, axis=1), C),
    "fftn": Row(mf.fftn, np.fft.fftn, C),
    "ifftn": Row(mf.ifftn, np.fft.ifftn, C),
    "rfftn": Row(mf.rfftn, np.fft.rfftn),
    "irfftn": Row(mf.irfftn, np.fft.irfftn, C, HALF),
    "hfft": Row(lambda x, **how: mf.hfft(x, axis=2, **how), np.fft.hfft, C, HALF),
    "ihfft": Row(lambda x, **how: mf.ihfft(x, axis=2, **how), np.fft.ihfft),
    "dctn": Row(mf.dctn, _dct),
    "idstn": Row(mf.idstn),
    "fftshift": Row(mf.fftshift, np.fft.fftshift),
    "fftn, order any": Row(lambda x, **how: mf.fftn(x, order="any", **how), np.fft.fftn, C),
    "fftn, wire int16": Row(lambda x, **how: mf.fftn(x, wire="int16", **how), np.fft.fftn, C, limit=2e-4),
    "fftn, cooley-tukey": Row(lambda x, **how: mf.fftn(x, method="cooley-tukey", **how), np.fft.fftn, C),
    "kdftn": Row(lambda x, **how: mf.kdftn(x, [mf.Points.turns(TURNS)], axes=(1,), **how), _at_turns, C),
    "apply_separable": Row(lambda x, **how: mf.apply_separable(MATRICES, x, **how)),
    "derivative": Row(lambda x, **how: mf.derivative(x, 1, **how), lambda x: filtered(x, 1j * ODD)),
    "poisson": Row(mf.poisson, inverse_laplacian),
    "poisson, walls": Row(lambda x, **how: mf.poisson(x, boundary=("dirichlet", "neumann", "periodic"), **how)),
    "multiply_spectrum": Row(_smoothed, lambda x: filtered(x, 1 / (1 + SQUARE))),
    "convolve": Row(lambda x, **how: mf.convolve(x, KERNEL, **how), _convolved),
    "power_spectrum": Row(lambda x, **how: mf.power_spectrum(x, **how).power, end=P()),
    "nufftn": Row(lambda x, **how: mf.nufftn(x, SCATTERED, **how), _at_points, C, end=ALL, limit=2e-5),
    "nufftn_adjoint": Row(
        lambda c, **how: mf.nufftn_adjoint(c, SCATTERED, SHAPE, **how), _adjoint, C, (16,), ALL, SPEC, 2e-5
    ),
    "nufftn_type3": Row(
        lambda c, **how: mf.nufftn_type3(c, POINTS, SCATTERED, **how), _type3, C, (16,), ALL, ALL, 2e-5
    ),
}
Function = Callable[[Array], Array]


class Numbers(NamedTuple):
    """An array, others of its shape, a cotangent of the result, and the truth: values and a derivative."""

    x: np.ndarray
    along: np.ndarray
    ct: np.ndarray
    value: np.ndarray
    change: np.ndarray


@functools.cache
def numbers(name: str) -> Numbers:
    row = FUNCTIONS[name]
    x, along = (noise(row.shape, row.kind, seed) for seed in (0, 1))
    wide = complex if row.kind == C else float
    truth = row.truth or (lambda x: np.asarray(row.function(jnp.asarray(x.astype(row.kind)))).astype(wide))
    value, other = truth(x.astype(wide)), truth(along.astype(wide))
    change = truth((x + along).astype(wide)) - value - other if name == "power_spectrum" else other
    return Numbers(x, along, noise(value.shape, C if np.iscomplexobj(value) else "float32", 2), value, change)


def _pulled(f: Function, x: Array, at: Numbers) -> Array:
    return jax.vjp(f, x)[1](jnp.asarray(at.ct))[0]


def _jacrev(f: Function, x: Array, at: Numbers) -> Array:
    paired = lambda x: jnp.sum((f(x) * at.ct).real)  # noqa: E731
    return jax.jacrev(lambda x: jnp.stack([3 * paired(x), paired(x)]))(x)[1]


def _own_rule(f: Function, x: Array, at: Numbers) -> Array:
    """Its rule is twice the truth, so that it is known to be used."""
    g = jax.custom_vjp(lambda x: f(x))
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (2 * jax.vjp(f, x)[1](ct)[0],))
    return _pulled(g, x, at) / 2


def _loop(f: Function, x: Array, at: Numbers) -> Array:
    start = (0, jnp.zeros(at.value.shape, at.ct.dtype))
    return jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(x)), start)[1]


# Each makes the value, or where it is in PULLED a pullback.
TRANSFORMATIONS: dict[str, Callable[[Function, Array, Numbers], Array]] = {
    "jit": lambda f, x, at: f(x),
    "grad": _pulled,
    "jvp": lambda f, x, at: jax.jvp(f, (x,), (jnp.asarray(at.along),))[1],
    "jacfwd": lambda f, x, at: jax.jacfwd(lambda t: f(x + t.astype(x.dtype) * at.along))(jnp.zeros(())),
    "jacrev": _jacrev,
    "custom_vjp": _own_rule,
    "checkpoint": lambda f, x, at: _pulled(jax.checkpoint(lambda x: f(x)), x, at),
    "vmap": lambda f, x, at: jax.vmap(f, -1)(jnp.stack([at.along, x], -1))[1],
    "vmap with spmd_axis_name": lambda f, x, at: jax.vmap(f, spmd_axis_name="x")(jnp.stack([at.along, x]))[1],
    "scan": lambda f, x, at: jax.lax.scan(lambda c, _: (c, f(c)), x, None, 2)[1][1],
    "while_loop": _loop,
    "cond": lambda f, x, at: jax.lax.cond(jnp.max(x.real) < jnp.inf, f, lambda x: 2 * f(x), x),
    "donate_argnums": lambda f, x, at: jax.jit(f, donate_argnums=0)(x),
}
PULLED = ("grad", "jacrev", "custom_vjp", "checkpoint")
CHANGED = ("jvp", "jacfwd")


def explicit(name: str, *kinds: AxisType) -> Any:
    row, devices = FUNCTIONS[name], jax.make_mesh((2, 4), ("x", "y"), axis_types=kinds)
    with jax.set_mesh(devices):
        return _run(lambda x: row.function(1 * x), put(numbers(name).x, row.start, devices))


def manual(name: str, *names: str) -> Any:
    """Blocks in a shard_map over these mesh axes, with `spec=`."""
    row, devices = FUNCTIONS[name], mesh((2, 4), AxisType.Auto)
    start, end = (P(*(_kept(part, names) for part in spec)) for spec in (row.start, row.end))
    body = functools.partial(row.function, spec=row.start)
    run = jax.shard_map(body, mesh=devices, axis_names=set(names), in_specs=start, out_specs=end)
    return _run(run, put(numbers(name).x, row.start))


def _kept(part: Any, names: tuple[str, ...]) -> Any:
    kept = tuple(one for one in (part if isinstance(part, tuple) else (part,)) if one in names)
    return kept or None


def placed(name: str, x: Any) -> Any:
    return _run(FUNCTIONS[name].function, x)


PLACES: dict[str, Callable[[str], Any]] = {
    "Explicit": lambda name: explicit(name, AxisType.Explicit, AxisType.Explicit),
    "Explicit and Auto": lambda name: explicit(name, AxisType.Explicit, AxisType.Auto),
    "Manual": lambda name: manual(name, "x", "y"),
    "Manual and Auto": lambda name: manual(name, "x"),
    "replicated": lambda name: placed(name, put(numbers(name).x, P())),
    "on one device": lambda name: placed(name, jnp.asarray(numbers(name).x)),
    "a constant": lambda name: _constant(name),
    "GSPMD": lambda name: _by_gspmd(name),
}


def _constant(name: str) -> Any:
    x = put(numbers(name).x, FUNCTIONS[name].start)
    return _run(lambda _: FUNCTIONS[name].function(x), jnp.ones(()))


def _by_gspmd(name: str) -> Any:
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        return placed(name, put(numbers(name).x, FUNCTIONS[name].start))
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)


def _run(f: Callable[..., Any], x: Array) -> Any:
    program = jax.jit(f).lower(x).compile()
    assert not (found := gathers(program)), found
    return program(x)


def gathers(program: Any) -> list[str]:
    """Lines of a compiled program that gather or sum more than a few numbers over devices."""
    lines = re.findall(r"^.* (?:all-gather|all-reduce)(?:-start)?\(.*$", program.as_text(), re.M)
    sizes = [re.findall(r"[a-z]\d+\[([\d,]*)\]", re.split(r" all-(?:gather|reduce)", line)[0]) for line in lines]
    many = [max(int(np.prod([int(n) for n in size.split(",") if n] or [1])) for size in some) for some in sizes]
    return [line for line, n in zip(lines, many, strict=True) if n > FEW]


def transformed(name: str, columns: tuple[str, ...]) -> dict[str, Array]:
    """Results of several transformations, which one program makes."""
    row, at = FUNCTIONS[name], numbers(name)
    return _run(lambda x: {one: TRANSFORMATIONS[one](row.function, x, at) for one in columns}, put(at.x, row.start))


def check(name: str, column: str, y: Any) -> None:
    """Raises AssertionError for a wrong number."""
    at, limit = numbers(name), FUNCTIONS[name].limit
    if column not in PULLED:
        assert error(mf.gather(y), at.change if column in CHANGED else at.value) <= limit, (name, column)
        return
    differs, scale = np.sum(np.asarray(y) * at.along) - np.sum(at.ct * at.change), np.linalg.norm(at.ct)
    both = np.iscomplexobj(at.x) and np.iscomplexobj(at.ct)
    assert abs(differs if both else differs.real) <= limit * scale * np.linalg.norm(at.change), (name, column)


GROUPS = (tuple(TRANSFORMATIONS), tuple(PLACES)[:4], tuple(PLACES)[4:])  # a column of the table each


def table_row(name: str, refused: Mapping[str, str], reasons: Mapping[str, str]) -> str:
    """A row of the table; `reasons`: letters of its list of reasons, with their first words."""

    def cell(columns: tuple[str, ...]) -> str:
        no = [one for one in columns if one in refused]
        letters = [next(key for key, words in reasons.items() if refused[one].startswith(words)) for one in no]
        return "all" + "".join(f", not {one} ({key})" for one, key in zip(no, letters, strict=True))

    return f"| `{name}` | " + " | ".join(map(cell, GROUPS)) + " |"


def refusals(name: str, columns: tuple[str, ...]) -> dict[str, str]:
    """What is refused, and the first words of why; raises AssertionError for a wrong number or a gather."""
    found, results = dict[str, str](), dict[str, Array]()
    together = tuple(one for one in columns if one in TRANSFORMATIONS)
    try:
        results = transformed(name, together) if together else results
    except (ValueError, TypeError, NotImplementedError, AssertionError):
        pass  # each alone: XLA may cut what they share as suits only one
    for column in columns:
        try:
            y = results[column] if column in results else _cell(name, column)
        except (ValueError, TypeError, NotImplementedError) as refusal:
            found[column] = str(refusal).split(":")[0]
        else:
            check(name, column, y)
    return found


def _cell(name: str, column: str) -> Any:
    return PLACES[column](name) if column in PLACES else transformed(name, (column,))[column]
