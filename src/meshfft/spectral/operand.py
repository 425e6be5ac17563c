"""The second array of a convolution: where it is, and plans of three walks whose spectra are cut alike.

Its walk moves no mesh axis along dimensions that only the first has, and the first's walk ends as the second's.
Invariant: nothing is gathered.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from ..layout.layout import Layout, Spec, mapped_axes, resized, spec_of
from ..layout.padded_array import AnyStored, PaddedArray, mapped, padded, stored_of
from ..layout.placement import cut_alike, explicit_axes, varies_over
from ..layout.reading import hidden_by
from ..layout.storage import cut_replicated
from ..plans.options import Definition
from ..plans.plan import Plan
from ..plans.planning import laid_out, planned
from ..plans.request import Setting, read
from .fields import harmonics, placed, seen


class OperandPlace(NamedTuple):
    """Where b is: the dimensions of a that it has, and its layout along them."""

    kept: tuple[int, ...]
    layout: Layout | None  # None: on every device, and cut as suits the walk of a
    everywhere: bool  # every device has all of it


class Walks(NamedTuple):
    """Plans of a, b and the result c."""

    a: Plan
    b: Plan
    c: Plan
    place: OperandPlace
    used: tuple[int, ...]  # samples of b that count, along its dimensions


def place_of(
    b: AnyStored, a: AnyStored, dims: tuple[int, ...], setting: Setting
) -> tuple[OperandPlace, tuple[int, ...]]:
    """Where b is, and its shape; raises ValueError if it does not fit a."""
    start, mesh, whole = setting.start, setting.mesh, _as_block(b, a, dims, setting)
    shape = b.shape if whole is None else whole
    _check_shapes(start.shape, shape, dims)
    has = enumerate(shape, start.ndim - len(shape))
    kept = tuple(d for d, n in has if d in dims or n == start.shape[d])
    alike, stored = start.along(kept), stored_of(b)
    known = not isinstance(stored, jax.core.Tracer)
    if whole is not None:
        return OperandPlace(kept, alike, False), shape
    if b is not stored or any(jax.typeof(b).sharding.spec) or (known and not b.sharding.is_fully_replicated):
        layout = read(b).setting.start
        there = layout.along([d - start.ndim for d in kept])
        if layout.mesh_axes and (there.axes != alike.axes or (there.shape == alike.shape and there != alike)):
            all_of_b = "mf.gather(b)" if isinstance(b, PaddedArray) else "jax.device_put(b, NamedSharding(mesh, P()))"
            remedy = f"shard them alike, or give b to every device, {all_of_b}"
            raise ValueError(f"a is sharded as {start.spec}, b as {layout.spec}: {remedy}")
        return OperandPlace(kept, there if layout.mesh_axes else None, not layout.mesh_axes), shape
    hidden = not known and not mapped_axes(mesh) and hidden_by(b) is not None and cut_alike(shape, start.shape)
    return OperandPlace(kept, alike if hidden else None, True), shape


def walks_of(a: Plan, place: OperandPlace, used: tuple[int, ...], result: tuple[int, ...]) -> Walks:
    start, kept, dims = a.in_layout, place.kept, a.transform.dims
    inner = tuple(map(kept.index, dims))
    kind, s = ("rfft" if a.walk.real else "fft"), tuple(n for _, n in harmonics(a))

    def plan(shape: Sequence[int], spec: Spec, axes: tuple[int, ...], out_spec: Spec | None = None) -> Plan:
        order = a.options.order if out_spec is None else "natural"
        setting = Setting(laid_out(shape, a.mesh, spec), a.mesh, a.machine, a.in_dtype)
        options = a.options._replace(order=order, out_spec=out_spec)
        return planned(None, setting, Definition(s, axes, kind=kind), options)

    at, end = place.layout or start.along(kept), a.out_layout.along(kept)
    free = place.layout is None and all(end.parts[j] == 1 for j in inner)
    if free:
        at = Layout(used, end.cuts)  # each device transforms the lines of b that it multiplies
    elif place.layout is None:
        sizes = [max(n, m) for n, m in zip(at.shape, used, strict=True)]
        at = resized(at, tuple(range(at.ndim)), tuple(sizes))
    b = a if at == start else plan(at.shape, at.spec, inner)
    axes = list((a.out_layout if free else start).axes)
    for d, names in zip(kept, b.out_layout.axes, strict=True):
        axes[d] = names
    there = spec_of(axes)
    if a.out_layout.axes != tuple(axes):
        a = plan(start.shape, start.spec, dims, there)
    c = a if result == start.shape else plan(result, start.spec, dims, there)
    if not b.out_layout.cuts == a.out_layout.along(kept).cuts == c.out_layout.along(kept).cuts:
        a, c = plan(start.shape, start.spec, dims, there), plan(result, start.spec, dims, there)
        b = plan(at.shape, at.spec, inner, b.out_layout.spec)
    return Walks(a, b, c, place, used)


def spread(b: AnyStored, walks: Walks) -> AnyStored:
    """b on the devices of a, if JAX shows no device or all devices have it."""
    mesh, layout, kept = walks.a.mesh, walks.b.in_layout, walks.place.kept
    if not walks.place.everywhere:
        return b
    b = stored_of(b)
    nowhere = not isinstance(b, jax.core.Tracer) and jax.sharding.get_abstract_mesh().empty
    # As under Auto axes, XLA places b where it is used.
    if isinstance(mesh, Mesh) or (mesh is not None and explicit_axes(mesh) and not (mapped_axes(mesh) or nowhere)):
        first = walks.a.in_layout.ndim - b.ndim
        names = dict(zip(kept, layout.axes, strict=True))
        same = layout.even and layout.shape == tuple(b.shape[d - first] for d in kept)
        return placed(b, mesh, spec_of(names.get(d + first, ()) for d in range(b.ndim)) if same else PartitionSpec())
    return b


def spectrum(walks: Walks, b: AnyStored, a: AnyStored) -> Array:
    """The stored spectrum of b, 1 long along the dimensions that it lacks."""
    ndim, layout = walks.a.in_layout.ndim, walks.b.in_layout
    lacking = [d - ndim for d in range(ndim) if d not in walks.place.kept]
    single, source = tuple(d for d in lacking if d >= -b.ndim), b if isinstance(b, PaddedArray) else a
    # Every device needs the one element of a dimension, which a cut leaves on the first.
    summed = single and isinstance(b, PaddedArray)
    stored = stored_of(b.sum(single, b.dtype)) if summed else jnp.squeeze(stored_of(b), single)
    if walks.place.everywhere:
        y = _cut(stored, walks, a)
    else:
        y = padded(stored, layout, walks.b.mesh, source)
        for dim, (n, most) in enumerate(zip(layout.shape, walks.used, strict=True)):
            if n > most:
                mask = seen(layout, dim, (np.arange(n) < most).astype(stored.dtype), walks.b.mesh)
                y = mapped(lambda x, mask=mask: x * mask, y)
    return jnp.expand_dims(stored_of(walks.b(y)), tuple(lacking))


def _cut(b: Array, walks: Walks, a: AnyStored) -> AnyStored:
    layout, mesh = walks.b.in_layout, walks.b.mesh
    b = b[tuple(slice(n) for n in layout.shape)]
    manual = mapped_axes(mesh)
    known = not manual & layout.mesh_axes and (mesh is None or manual or not jax.typeof(b).sharding.mesh.empty)
    as_is = known and layout.even and b.shape == layout.shape
    return padded(b if as_is else cut_replicated(b, layout, mesh), layout, mesh, a)


def _check_shapes(a: tuple[int, ...], b: tuple[int, ...], dims: tuple[int, ...]) -> None:
    first = len(a) - len(b)
    if missing := [d for d in dims if d < first]:
        has = f"a has shape {a}, b {b}, which has no axis {missing[0]}"
        raise ValueError(f"{has}: give it {len(a) - missing[0]} dimensions")
    if first < 0:
        raise ValueError(f"a has shape {a}, b {b}: give b at most as many dimensions")
    for dim, m in enumerate(b, first):
        if dim in dims and not m:
            raise ValueError(f"b has 0 samples along axis {dim}: give it at least one")
        if dim not in dims and m not in (1, a[dim]):
            raise ValueError(f"b has {m} lines along axis {dim}, a {a[dim]}: give as many, or one for all")


def _as_block(b: AnyStored, a: AnyStored, dims: tuple[int, ...], setting: Setting) -> tuple[int, ...] | None:
    """Global shape of b if it is a block in a shard_map; None if it is replicated."""
    start = setting.start
    mine, first = mapped_axes(setting.mesh) & start.mesh_axes, start.ndim - b.ndim
    if not mine or first < 0 or isinstance(b, PaddedArray):
        return None
    block, known, varies = start.within(mine)[first:], mine & varies_over(stored_of(a)), varies_over(b)
    pairs = list(enumerate(zip(b.shape, block, strict=True), first))
    fits = not isinstance(a, PaddedArray) and all(n == m or (n == 1 and d not in dims) for d, (n, m) in pairs)
    if not fits and (differs := sorted(mine & varies)):
        has = f"b has shape {b.shape}, a's block {block}, and b differs over {', '.join(differs)}"
        raise ValueError(f"{has}: give a block of that shape, or the whole b on every device")
    own = [d for d, (n, m) in pairs if n == m and (n > 1 or not known or varies.intersection(start.axes[d]))]
    if fits and (missing := sorted(known.intersection(*[set().union(*(start.axes[d] for d in own))]) - varies)):
        raise ValueError(
            f"b has the shape of a's block, {b.shape}, and is the same over {', '.join(missing)}: if it is a block, "
            f"give jax.lax.pcast(b, {tuple(missing)}, to='varying'), else pad it with zeros at its tail"
        )
    return tuple(start.shape[d] if d in own else n for d, (n, _) in pairs) if fits else None
