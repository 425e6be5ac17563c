"""Nonuniform FFTs between an image and samples of its spectrum at scattered points.

    c_j = sum_n x[n] exp(-2 pi i k_j . n)        nufftn, type 2
    x[n] = sum_j c_j exp(2 pi i k_j . n)         nufftn_adjoint, type 1, its conjugate transpose

Both interpolate on a fine grid of the spectrum.
"""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from jax.typing import DTypeLike

from ..layout.layout import AnyMesh
from ..layout.padded_array import AnyArray, Transformed
from ..machine.topology import Named
from ..numerics.dtypes import check_reached
from ..operators.transform import integers
from ..plans.options import FieldHow, SpectrumHow, check_options, options_of, spelled, with_options
from ..plans.planning import laid_out, machines
from ..plans.request import Setting, read
from .plan import ScatteredPlan
from .planning import plan_to_points, scattered_plan_for
from .points import Scattered, known_kind
from .problem import brought, problem_of


@with_options
def nufftn(
    x: AnyArray,
    points: Scattered,
    *,
    axes: Sequence[int] | None = None,
    tol: float = 1e-6,
    sigma: float | None = None,
    norm: str | None = None,
    origin: str = "corner",
    order: str = "any",
    capacity: float | None = None,
    **how: Unpack[FieldHow],
) -> Transformed:
    """The spectrum of an image at scattered points: nonuniform FFT of type 2.

        c_j = sum_n x[n] exp(-2 pi i k_j . n)

    Args:
        x: an image or a batch of them, sharded, replicated or on one device,
            of any numeric type.
        points: where the spectrum is sampled, from `Scattered.turns`,
            `.radians` or `.field_of_view`.
        axes: the transformed dimensions, one for each coordinate; by default
            the last.
        tol: largest error of a wave exp(..) at any point and pixel: 1e-2 to
            1e-6 (1e-12 in complex128). A value errs by at most tol times the
            sum of |x|; the L2 error is on average at most tol times the norm
            of the values, if phases of x are random.
        sigma: cells of the fine grid per pixel; by default 2, or the cheapest
            of 2, 1.5 and 1.25 if tol >= 1e-3. A smaller sigma sends less, but
            needs wider windows.
        norm: as `fftn`, by the number of samples of the image.
        origin: "corner": n counts from 0; "centre": from -(N // 2), as in
            finufft and MRI.
        method: "kdft": the sum itself, by dense products; "auto": also this if
            matrix units make it cheaper; others as `fftn`, for the fine grid.
        order: "any" leaves the fine grid in the cheapest layout; "natural"
            keeps it sharded as the image.
        capacity: for points that JAX traces. None sends the fine grid to them.
            A number sends the points to the owners of their cells: each pair of
            devices has slots for `capacity` times its mean number of points,
            and 16 more. 2 suffices for points spread at random, the number of
            devices for any. Points without a slot have the value NaN, and make
            the adjoint image NaN.
        precision: "float32" or "float64"; by default that of the image.
        other options: as `fftn`. The error of lossy messages, which
            `print(mf.scattered_plan(...))` shows, adds to tol.
        spec: sharding of the image, if JAX hides it; out_spec: of the values.

    Returns:
        The values, batch dimensions first and then those of the points. The
        mesh axes that cut transformed dimensions cut the points' dimensions
        instead; if an axis divides none of these, the values are a PaddedArray.

    Raises:
        ValueError, TypeError: as `fftn`; points whose number of coordinates is
            not that of the dimensions; a tolerance below the precision.

    Costs one transform of the fine grid, a halo of a window's width, width^d
    operations a point, and one or two all-to-alls of the values. Points on the
    host are placed once, and kept. For traced points the fine grid is sent
    round a ring, in P - 1 hops; with a capacity two all-to-alls send points
    and values. Differentiable in x, and to any order in traced points; each
    derivative in them loses about one digit.

    Source: Barnett, Magland, af Klinteberg, "A parallel non-uniform fast
    Fourier transform library", SISC 2019.

    >>> points = mf.Scattered.turns([[0.0], [0.25]])
    >>> mf.nufftn(np.ones(4), points).real.round(3).tolist()
    [4.0, 0.0]
    """
    what = {"tol": tol, "sigma": sigma, "norm": norm, "origin": origin, "capacity": capacity}
    return _transformed(x, points, None, axes, order, how, what)


@with_options
def nufftn_adjoint(
    c: AnyArray,
    points: Scattered,
    shape: int | Sequence[int],
    *,
    axes: Sequence[int] | None = None,
    tol: float = 1e-6,
    sigma: float | None = None,
    norm: str | None = None,
    origin: str = "corner",
    order: str = "any",
    capacity: float | None = None,
    **how: Unpack[FieldHow],
) -> Transformed:
    """The image of values at scattered points: the nonuniform FFT of type 1,
    the adjoint of `nufftn`.

        x[n] = sum_j c_j exp(2 pi i k_j . n)

    Args:
        c: values at the points, with any batch dimensions first.
        points: as `nufftn`.
        shape: the sizes of the image along the transformed dimensions.
        axes: the dimensions of the result that have the sizes in `shape`, in
            its order; by default the last ones.
        tol, sigma, norm, origin, and options: as `nufftn`.
        spec: sharding of c, if JAX hides it.
        out_spec: sharding of the image; by default each mesh axis that cuts the
            values cuts one dimension, evenly if it can.

    Returns:
        The image, with batch dimensions.

    Raises:
        ValueError, TypeError: as `nufftn`; values of another shape than the
            points.

    Costs as `nufftn`. It is not the inverse: weight the values by
    `ScatteredPlan.density`, or solve with `.normal`.

    Source: as `nufftn`.

    >>> points = mf.Scattered.turns([[0.5]])
    >>> mf.nufftn_adjoint(np.ones(1), points, 4).real.round(3).tolist()
    [1.0, -1.0, 1.0, -1.0]
    """
    what = {"tol": tol, "sigma": sigma, "norm": norm, "origin": origin, "capacity": capacity}
    return _transformed(c, points, integers(shape, "shape"), axes, order, how, what)


@spelled
def scattered_plan(
    shape: Sequence[int],
    points: Scattered,
    *,
    mesh: AnyMesh | None = None,
    axes: Sequence[int] | None = None,
    tol: float = 1e-6,
    sigma: float | None = None,
    norm: str | None = None,
    origin: str = "corner",
    order: str = "any",
    slack: int = 0,
    balance: bool | None = None,
    dtype: DTypeLike = "complex64",
    topology: Named | None = None,
    **how: Unpack[SpectrumHow],
) -> ScatteredPlan:
    """A plan for transforms at scattered points, made without image or device.

    Args:
        shape: logical shape of the image, with its batch dimensions (coils).
        points: where the spectrum is sampled.
        mesh, spec: as `plan`.
        axes, tol, sigma, norm, origin, and options: as `nufftn`. The plan's
            `normal`, and the iterations of its `solve`, ignore `wire`.
        slack: cells of the fine grid by which traced points may move.
        balance: whether devices with more points than the mean lend tiles of
            the grid to other devices; by default if devices have separate
            memories.
        dtype: type of the image.
        topology: as `plan`.

    Returns:
        A ScatteredPlan: call it with an image, or its `.adjoint` with values.

    Raises:
        ValueError, TypeError: as `nufftn`.

    Costs 0.2 to 0.4 s of host time for a million points on eight devices.

    >>> points = mf.Scattered.turns([[0.0], [0.25]])
    >>> plan = mf.scattered_plan((4,), points)
    >>> plan(np.ones(4)).real.round(3).tolist()
    [4.0, 0.0]
    """
    options = options_of(how, SpectrumHow)._replace(order=order)
    check_options(options)
    if options.method == "kdft":
        raise ValueError("method 'kdft' is the sum itself, which places no points: use mf.plan(shape, points=points)")
    start, given = laid_out(shape, mesh, how.get("spec")), np.dtype(dtype)
    what = dict[str, Any](tol=tol, sigma=sigma, norm=norm, origin=origin, slack=slack, balance=balance)
    settings = (Setting(start, mesh, machine, given) for machine in machines(mesh, topology))
    problems = (problem_of(setting, points, axes, options, **what) for setting in settings)
    return min(map(scattered_plan_for, problems), key=lambda plan: plan.seconds or 0.0)


def _transformed(
    a: AnyArray,
    points: Scattered,
    sizes: tuple[int, ...] | None,
    axes: Sequence[int] | None,
    order: str,
    how: FieldHow,
    what: dict[str, Any],
) -> Transformed:
    options = options_of(how, FieldHow)._replace(order=order)
    check_options(options)
    request, points = read(a, how.get("spec")), known_kind(points)
    problem = problem_of(request.setting, points, axes, options, sizes, **what)
    plan = plan_to_points(problem)
    check_reached(options.precision, plan.error, problem.wires.remedy)
    if sizes is None:
        return plan.execute(request)
    return plan.execute(brought(request, plan.out_layout), adjoint=True)
