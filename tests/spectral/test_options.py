"""Options of spectral functions: narrower messages within the printed error, methods, precisions, and refusals."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from marks import slow_but, slow_case
from reference import dft, error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import Collective, collectives, every_collective, program_of

SHAPE, SPEC, BOX = (16, 24, 32), P("x", "y"), (2 * np.pi, 2 * np.pi, 2 * np.pi)
KERNEL = noise(SHAPE, "float32", 5)
Function = Callable[..., Any]
FUNCTIONS: dict[str, Function] = {
    "derivative": lambda x, **how: mf.derivative(x, (0, 1), order=(2, 1), lengths=BOX[:2], **how),
    "poisson": lambda x, **how: mf.poisson(x, BOX, **how),
    "walls": lambda x, **how: mf.poisson(x, BOX, boundary=("dirichlet", "neumann", "periodic"), **how),
    "open space": lambda x, **how: mf.poisson(x, BOX, boundary="open", **how),
    "helmholtz": lambda x, **how: mf.helmholtz(x, -2.0, BOX, **how),
    "multiply_spectrum": lambda x, **how: mf.multiply_spectrum(x, _response, lengths=BOX, **how),
    "convolve": lambda x, **how: mf.convolve(x, KERNEL, **how),
    "correlate": lambda x, **how: mf.correlate(x, KERNEL, **how),
    "power_spectrum": lambda x, **how: mf.power_spectrum(x, BOX, bins=3, **how).power,
    "cross_spectrum": lambda x, **how: mf.cross_spectrum(x, jnp.roll(x, 1, 2), BOX, bins=3, **how).power,
}
# name: the factor of each wave
FACTORS: dict[str, Function] = {
    "derivative": lambda i, j, k: -1j * i**2 * np.where(2 * abs(j) == SHAPE[1], 0, j) + 0 * k,
    "poisson": lambda i, j, k: -_reciprocal(i**2 + j**2 + k**2),
    "helmholtz": lambda i, j, k: -1 / (2 + i**2 + j**2 + k**2),
    "multiply_spectrum": lambda i, j, k: _response(i, j, k),
    "convolve": lambda *_: dft(KERNEL, (0, 1, 2)),
    "correlate": lambda *_: dft(KERNEL, (0, 1, 2)).conj(),
}


def _response(i: Any, j: Any, k: Any) -> Any:
    return 1 / (1 + i**2 + j**2 + k**2)


def _reciprocal(x: Any) -> Any:
    return np.where(x > 0, 1 / np.where(x > 0, x, 1), 0)


def _sent(function: Function, x: Any, **how: Any) -> tuple[Collective, ...]:
    return every_collective(program_of(jax.jit(lambda x: function(x, **how)).lower(x).compile()))


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", slow_but(("poisson", "convolve", "power_spectrum"), FUNCTIONS))
def test_a_wire_halves_what_a_function_sends(name: str) -> None:
    """Catches a function that takes wire= and sends floats in one of its walks, there or back, and one that gathers."""
    x = mf.shard(noise(SHAPE, "float32"), mesh((4,)), P("x"))
    every = [_sent(FUNCTIONS[name], x, method="transpose", wire=wire) for wire in ("exact", "int16")]
    assert not {"all-gather"} & {one.kind for sent in every for one in sent}
    exact, words = ([one for one in sent if one.kind == "all-to-all"] for sent in every)
    assert len(words) == len(exact) >= 1
    before, after = (sum(one.bytes * one.times for one in sent) for sent in (exact, words))
    assert 0.5 <= after / before <= 0.57


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("name", "wire"),
    [
        *((name, "int16") if name in ("poisson", "convolve") else slow_case(name, "int16") for name in FACTORS),
        slow_case("derivative", "int24"),
        slow_case("poisson", "bfloat16"),
    ],
)
def test_no_more_error_than_the_plans_print(name: str, wire: str) -> None:
    """Catches a wire of fewer bits than the plan's, gradients that travel otherwise, and a result that is moved."""
    a, where = noise(SHAPE, "float32"), mesh((2, 4))
    x, grids = mf.shard(a, where, SPEC), np.ix_(*(np.fft.fftfreq(n, 1 / n) for n in SHAPE))
    factor = FACTORS[name](*grids)
    plan = mf.plan(SHAPE, mesh=where, spec=SPEC, kind="rfft", order="any", wire=wire)
    most = (2.1 if name in ("convolve", "correlate") else 2) * plan.error * abs(factor).max() * np.linalg.norm(a)

    def truth(factor: np.ndarray) -> np.ndarray:
        return dft(factor * dft(a, (0, 1, 2)), (0, 1, 2), sign=1).real / a.size

    y, back = jax.vjp(lambda x: FUNCTIONS[name](x, wire=wire), x)
    assert y.sharding.is_equivalent_to(x.sharding, 3) and y.dtype == np.float32
    exact = np.linalg.norm(FUNCTIONS[name](x) - truth(factor))
    assert exact < np.linalg.norm(y - truth(factor)) <= most
    assert np.linalg.norm(back(x)[0] - truth(factor.conj())) <= most


@pytest.mark.more
def test_methods_and_precisions(x64: None) -> None:
    """Catches a method, a ring, or a precision that is taken and not handed on."""
    a = noise((4, 8, 6), "float32")
    x = mf.shard(a, mesh((2,)), P("x"))
    found = {
        method: collectives(jax.jit(lambda x, m=method: mf.poisson(x, method=m)).lower(x).compile())
        for method in ("auto", "kdft")
    }
    assert set(found["auto"]) == {"all-to-all"} and set(found["kdft"]) == {"collective-permute"}
    wide = mf.poisson(x, method="kdft", ring="one-way", precision="float64")
    assert wide.dtype == np.float64 and error(wide, np.asarray(mf.poisson(a.astype("float64")))) < 1e-14
    assert mf.convolve(x, a, precision="float64").dtype == np.float64
    assert mf.power_spectrum(x, precision="float64").power.dtype == np.float64


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_are_read_once_at_the_boundary(name: str) -> None:
    """Catches an option that a function ignores."""
    x = mf.shard(noise(SHAPE, "float32"), mesh((8,)), P("x"))
    for option, value in (("wire", "int8"), ("method", "fft"), ("ring", "both"), ("engine", "mkl")):
        with pytest.raises(ValueError, match=f"{option} {value!r} is unknown: use one of"):
            FUNCTIONS[name](x, **{option: value})
    with pytest.raises(TypeError, match="donate: no such option, use one of method, spec"):
        FUNCTIONS[name](x, donate=True)
    if name.endswith("spectrum") and name != "multiply_spectrum":
        with pytest.raises(TypeError, match="out_spec: no such option"):
            FUNCTIONS[name](x, out_spec=P())
