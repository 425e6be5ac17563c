"""Every function and its gradient where JAX promotes no types and no ranks, as its own tests and careful users run it.

Programs are traced and lowered, not compiled: promotion is a matter of tracing.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import mesh, noise

import meshfft as mf

SHAPE, SPEC, MESH = (16, 8, 8), P("x", None, None), mesh((4,), AxisType.Explicit)
POINTS = [mf.Points.turns(np.linspace(0.0, 0.9, 16)), None, None]
REAL: dict[str, Callable[..., Any]] = {
    "rfftn": mf.rfftn,
    "derivative": lambda x: mf.derivative(x, (0, 1), order=(1, 2)),
    "poisson": mf.poisson,
    "convolve": lambda x: mf.convolve(x, x),
    "correlate": lambda x: mf.correlate(x, jnp.ones((4, 8, 8), x.dtype), mode="same"),
    "power_spectrum": mf.power_spectrum,
    "multiply_spectrum": lambda x: mf.multiply_spectrum(x, lambda *k: 1 / (1 + sum(line**2 for line in k))),
    **{f"dct-{j}": lambda x, j=j: mf.dctn(x, j) for j in (1, 2, 3, 4)},
    **{f"dst-{j}": lambda x, j=j: mf.dstn(x, j) for j in (1, 2, 3, 4)},
    "dense cosines": lambda x: mf.plan(SHAPE, mesh=MESH, spec=SPEC, kind="dct-2", dtype=x.dtype, method="kdft")(x),
    "dense rfft": lambda x: mf.plan(SHAPE, mesh=MESH, spec=SPEC, kind="rfft", dtype=x.dtype, method="kdft")(x),
    "matrices": lambda x: mf.apply_separable([noise((16, 16), "float32"), None, noise((8, 8))], x),
    "traced points": lambda x: mf.kdftn(x, [mf.Points.turns(x[:, 0, 0]), None, None]),
    "frequencies": lambda x: x * mf.fftfreq(16, dtype=x.dtype)[:, None, None],
}
COMPLEX: dict[str, Callable[..., Any]] = {
    "fftn": mf.fftn,
    "ifftn": lambda x: mf.ifftn(x, norm="ortho"),
    "cooley-tukey": lambda x: mf.fftn(x, method="cooley-tukey"),
    "irfftn": mf.irfftn,
    "irfft2": lambda x: mf.irfft2(x),
    "hfft": mf.hfft,
    "fftshift": mf.fftshift,
    "kdftn": lambda x: mf.kdftn(x, POINTS),
    "three products": lambda x: mf.kdftn(x, precision="bf16x3", multiplications=3),
    "planes": lambda x: mf.kdftn((x.real, x.imag)),
}


@pytest.mark.quick(17, 19)
@pytest.mark.parametrize("name", [*REAL, *COMPLEX])
def test_no_types_and_no_ranks_are_promoted(name: str) -> None:
    """Catches a bool times an int, a real array times a complex one, and a line times a block."""
    run, dtype = (REAL[name], "float32") if name in REAL else (COMPLEX[name], "complex64")
    x = jax.ShapeDtypeStruct(SHAPE, dtype, sharding=NamedSharding(MESH, SPEC))

    def loss(x: Any) -> Any:
        return sum(jnp.sum(jnp.square(jnp.abs(y))) for y in jax.tree.leaves(run(x)))

    with jax.set_mesh(MESH), jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        jax.jit(run).lower(x)
        jax.jit(jax.grad(loss)).lower(x)
