"""A spectrum times any function of the wavenumbers: a transform there, one back for each result, and no other trip.

    y = F^-1 (f(k) F x)

Invariant: the function is asked for the places of the spectrum as it is stored, so between the walks nothing is sent.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from ..layout.layout import Spec, mapped_axes
from ..layout.padded_array import PaddedArray, mapped, stored_of
from ..layout.placement import mesh_here
from ..numerics.dtypes import real_dtype
from ..plans.execute import moved
from ..plans.plan import Plan
from .fields import field, in_form_of, placed
from .wavenumbers import spec_along, wavenumbers


def multiply_spectrum(
    x: Any,
    f: Callable[..., Any],
    *,
    axes: Sequence[int] | None = None,
    lengths: Sequence[float] | None = None,
    odd: bool = False,
    spec: Spec | None = None,
    out_spec: Spec | None = None,
) -> Any:
    """A periodic sharded array with its spectrum multiplied by a function of the wavenumbers.

        y = F^-1 (f(k_1, ..., k_d) F x),   k = 2 pi j / length along each axis

    A filter, a propagator, a Green's function; or several at once of one transform, as the force of a potential:

        def force(kx, ky, kz, odd):
            square = kx**2 + ky**2 + kz**2
            potential = jnp.where(square > 0, -1 / jnp.where(square > 0, square, 1), 0)
            return tuple(-1j * k * potential for k in odd)

        fx, fy, fz = mf.multiply_spectrum(density, force, lengths=(1.0, 1.0, 1.0), odd=True)

    Args:
        x: a sharded, replicated or single-device array of samples of a periodic function, or its planes (re, im).
        f: called with an array of wavenumbers for each axis, as the spectrum is stored, 0 in its padding; they
            broadcast against one another. It returns the factors, in any shape that broadcasts to the spectrum's, or a
            tuple, or any pytree, of them. Of a real array half of the spectrum is there, whose last k is never
            negative: f(-k) has to be the conjugate of f(k), or y were not real. Nothing checks that; make the array
            complex where it is not so. f may use arrays from outside, traced ones too, and is differentiated in them.
        axes: the dimensions to transform; None means all. f is called with their wavenumbers in this order.
        lengths: the period along each axis; None means as many as there are samples, which are 1 apart.
        odd: call f(k_1, ..., k_d, odd=(q_1, ..., q_d)), where q is k but 0 at the Nyquist frequency: use q in what is
            odd in k, such as 1j * q, and k in what is even (see `wavenumbers`).
        spec: the array's PartitionSpec, needed only inside `jit` under Auto mesh axes, where JAX hides it.
        out_spec: the PartitionSpec of the results; None means that of the array.

    Returns:
        The product, sharded as the array came; real where it is real. One for each of several factors, in their tree.

    Raises:
        ValueError, TypeError: an f that is not callable or whose factors do not fit, axes, lengths or a spec that does
            not fit, with what would.

    Costs a transform, of any order, and one back for each result: a gradient along three axes costs four. Outside `jit`
    f runs op by op, so that a new function at every call compiles nothing, and holds a few arrays of the spectrum's
    size; inside `jit` it is part of the one program, which is fused. Differentiable.

    >>> import jax.numpy as jnp, meshfft as mf
    >>> x = jnp.array([1.0, 2.0, 1.0, 0.0])
    >>> mf.multiply_spectrum(x, lambda k: 1 / (1 + k**2), lengths=(6.283185307179586,)).round(4).tolist()
    [1.0, 1.5, 1.0, 0.5]
    """
    if not callable(f):
        raise TypeError(f"f is {f!r}: give a function of the wavenumbers, such as lambda kx, ky: 1j * kx")
    array, plan = field(x, axes, spec)
    grids = {"odd": _grids(plan, lengths, True)} if odd else {}
    factors = f(*_grids(plan, lengths, False), **grids)
    if not jax.tree.leaves(factors):
        raise TypeError(f"f made {factors!r}: let it return a factor, or a tuple of factors")
    spectrum = plan(array)

    def result(factor: Any) -> Any:
        y = mapped(lambda stored: _times(stored, stored_of(factor), plan), spectrum)
        return moved(in_form_of(x, plan.inverse(y)), out_spec, spec)

    return jax.tree.map(result, factors, is_leaf=lambda part: isinstance(part, PaddedArray))


def _grids(plan: Plan, lengths: Any, odd: bool) -> tuple[Array, ...]:
    """The wavenumbers along each axis, cut as the spectrum is, within `jit` too, lest products of them be whole."""
    mesh, lines = mesh_here(plan.mesh), tuple(map(stored_of, wavenumbers(plan, lengths, odd=odd)))
    if mesh is None or isinstance(mesh, Mesh) or mapped_axes(mesh) or not isinstance(lines[0], jax.core.Tracer):
        return lines
    specs = (spec_along(plan.out_layout, dim) for dim in plan.transform.dims)
    return tuple(placed(line, mesh, spec) for line, spec in zip(lines, specs, strict=True))


def _times(spectrum: Array, factor: Any, plan: Plan) -> Array:
    """The spectrum times a factor, in its own type and layout."""
    factor = jnp.asarray(factor)
    fits = factor.dtype.kind in "biufc" and factor.ndim <= spectrum.ndim
    sizes = zip(factor.shape[::-1], spectrum.shape[::-1], strict=False)
    if not fits or not all(n in (1, many) for n, many in sizes):
        raise ValueError(
            f"f made factors of shape {factor.shape} and type {factor.dtype} for a spectrum of {spectrum.shape}: "
            "make them of the wavenumbers it is called with"
        )
    mesh = mesh_here(plan.mesh)
    if mesh is None or isinstance(spectrum, jax.core.Tracer) or isinstance(factor, jax.core.Tracer):
        return _product(spectrum, factor)
    return placed(_product(spectrum, factor), mesh, plan.out_layout.spec)


@jax.jit
def _product(spectrum: Array, factor: Array) -> Array:
    real = real_dtype(spectrum.dtype)
    aligned = jax.lax.expand_dims(factor, range(spectrum.ndim - factor.ndim))
    if jnp.iscomplexobj(aligned):
        return spectrum * aligned.astype(spectrum.dtype)
    return jax.lax.complex(spectrum.real * aligned.astype(real), spectrum.imag * aligned.astype(real))
