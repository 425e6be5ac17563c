"""Calls inside `jit` under Auto mesh axes, planned when XLA has chosen the cuts of the array, which JAX does not show.

A call is one equation (see deferred_primitive). The function then plans and runs on blocks, as in a `shard_map`.
Arrays are PaddedArrays: XLA pads as this package does.
"""

import contextlib
import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, ShapeDtypeStruct
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from ..layout.layout import AnyMesh, Layout, axis_sizes, from_spec, hashed_once, spec_of
from ..layout.padded_array import LaidOut, is_padded, stored_of
from ..layout.placement import with_axes

CALLS = 256  # calls, and places of each
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, PartitionSpec)
INEXACT = "fc"  # kinds of types that have tangents
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
Names = tuple[str, ...]  # mesh axes
Shapes = tuple[ShapeDtypeStruct, ...]


class Role(NamedTuple):
    """An equation's value: the call's array or result of this number, with batches in front."""

    number: int
    result: bool = False
    batches: tuple[int, ...] = ()  # one for each `vmap`, the outermost first


class Fixed:
    """An argument that JAX does not trace, equal by type and value; without a hash, only to itself."""

    def __init__(self, value: object) -> None:
        if isinstance(value, np.ndarray):  # may change in place
            value = value.copy()
            same: object = (value.shape, value.dtype.str, value.tobytes())
        else:
            same = value
        self.value = value
        try:
            self.key = (type(value), same, hash(same))
        except TypeError:
            self.key = (type(value), None, id(value))

    @property
    def text(self) -> str | None:
        """The value as text, equal in every process; None if no text has all of it (a function)."""
        if isinstance(self.value, np.ndarray | np.generic | Array):
            value = np.asarray(self.value)
            return f"{value.shape} {value.dtype.str} {value.tobytes().hex()}"
        return repr(self.value) if isinstance(self.value, PLAIN) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self.key == other.key

    def __hash__(self) -> int:
        return self.key[2]


@dataclasses.dataclass(frozen=True)
class Place:
    """The layouts of a call's arrays and results on Manual mesh axes, and the axes that cut batches."""

    mesh: AbstractMesh | None  # None on one device
    arrays: tuple[Layout, ...]
    results: tuple[Layout, ...] = ()
    batches: tuple[tuple[int, Names], ...] = ()

    def layout(self, role: Role) -> Layout:
        return (self.results if role.result else self.arrays)[role.number]

    def leading(self, role: Role) -> list[Names]:
        return [dict(self.batches).get(batch, ()) for batch in role.batches]

    def parts(self, names: Iterable[str]) -> int:
        return math.prod(axis_sizes(self.mesh)[name] for name in names)

    def spec(self, role: Role) -> PartitionSpec:
        return spec_of((*self.leading(role), *self.layout(role).axes))

    def block(self, role: Role, shape: tuple[int, ...]) -> tuple[int, ...]:
        lead = (n // self.parts(names) for n, names in zip(shape, self.leading(role), strict=False))
        return (*lead, *self.layout(role).block)

    def copied(self, role: Role) -> set[str]:
        """Axes that cut an array or a batch, but not this value."""
        cutting = set().union(*(layout.mesh_axes for layout in self.arrays), *(names for _, names in self.batches))
        return cutting.difference(*self.leading(role), self.layout(role).mesh_axes)


@hashed_once
@dataclasses.dataclass(frozen=True)
class Call:
    """A function with its arguments. `cut` has, per dimension of each array, the dimension of the first array that is
    cut in the same way, or None; with only None an array is whole on every device.
    """

    function: Callable[..., Any]
    tree: jax.tree_util.PyTreeDef
    fixed: tuple[Fixed | None, ...]  # by leaf, None for an array
    cut: tuple[tuple[int | None, ...], ...]
    shapes: Shapes  # of arrays
    out: tuple[Names, ...] | None  # axes of `out_spec`
    wide: bool  # 64-bit types were on
    mesh: AnyMesh

    def __call__(self, place: Place, values: Sequence[Array]) -> Any:
        given = zip(values, place.arrays, self.cut, strict=True)
        arrays = iter([LaidOut(x, layout, place.mesh) if cut else x for x, layout, cut in given])
        args, how = jax.tree.unflatten(self.tree, [next(arrays) if one is None else one.value for one in self.fixed])
        if place.mesh is None:
            how = {name: value for name, value in how.items() if name != "out_spec"}
        return self.function(*args, **how)

    def run(self, place: Place, values: Sequence[Array]) -> list[Array]:
        return [jnp.asarray(stored_of(y)) for y in jax.tree.leaves(self(place, values), is_leaf=is_padded)]

    def spec(self, axes: Sequence[Names]) -> PartitionSpec:
        """The spec nearest to `axes` that the array may have."""
        if self.out is None:
            return spec_of(axes)
        kept = [tuple(name for name in names if name in set().union(*self.out)) for names in axes]
        for dim, names in enumerate(self.out):
            new = tuple(name for name in names if name not in set().union(*kept))
            kept[dim if dim < len(kept) else 0] += new
        return spec_of(kept)

    @functools.cached_property
    def text(self) -> tuple[str, bool]:
        """The call as text, and whether that is complete."""
        words = ["" if one is None else one.text for one in self.fixed]
        name, tree = f"{self.function.__module__}.{self.function.__qualname__}", str(self.tree)
        whole = not ADDRESS.search(tree) and None not in words
        return repr((name, ADDRESS.sub("", tree), words, self.cut, self.shapes, self.out, self.wide)), whole

    @contextlib.contextmanager
    def within(self, mesh: AbstractMesh | None) -> Iterator[None]:
        """XLA calls back from a thread without the call's 64-bit switch and mesh."""
        with jax.enable_x64(self.wide), jax.sharding.use_abstract_mesh(mesh or AbstractMesh((), ())):
            yield

    @functools.lru_cache(maxsize=CALLS)  # noqa: B019 - a few calls are kept, with all their places
    def placed(self, mesh: AbstractMesh | None, spec: PartitionSpec) -> tuple[Place, Shapes, jax.tree_util.PyTreeDef]:
        """The place for a spec, and the results' shapes and structure."""
        sizes = axis_sizes(mesh)
        axes = from_spec(self.shapes[0].shape, sizes, spec).axes
        specs = (spec_of(() if d is None else axes[d] for d in cut) for cut in self.cut)
        place = Place(mesh, tuple(from_spec(x.shape, sizes, one) for x, one in zip(self.shapes, specs, strict=True)))
        blocks = [ShapeDtypeStruct(at.block, x.dtype) for at, x in zip(place.arrays, self.shapes, strict=True)]
        trace = jax.make_jaxpr(lambda *values: self(place, values), axis_env=list(sizes.items()), return_shape=True)
        with self.within(mesh):
            program, found = trace(*blocks)
        if any(isinstance(const, jax.core.Tracer) for const in program.consts):
            remedy = "give it as jax.tree_util.Partial(f, array), where f takes that array first, or pass spec="
            raise ValueError(f"under Auto mesh axes a function among the arguments uses a traced array: {remedy}")
        results, tree = jax.tree.flatten(found, is_leaf=is_padded)
        layouts = tuple(y.full_layout if is_padded(y) else from_spec(y.shape, sizes, None) for y in results)
        shapes = tuple(ShapeDtypeStruct(at.shape, y.dtype) for at, y in zip(layouts, results, strict=True))
        return dataclasses.replace(place, results=layouts), shapes, tree


@dataclasses.dataclass(frozen=True, eq=False)
class DeferredWork:
    """An equation's work on blocks: a call, or work made from it."""

    call: Call
    ins: tuple[Role, ...]
    outs: tuple[Role, ...]
    results: Shapes
    linear: frozenset[int]  # values that it is jointly linear in
    run: Callable[[Place, Sequence[Array]], list[Array]]
    told: tuple[NamedSharding | None, ...] = ()  # shardings of results that XLA has no rule for
    made: tuple[object, ...] = ()  # how it was made from the call

    def name(self, values: Shapes) -> str:
        """A digest of all that this work depends on, equal in every process; functions count by their results."""
        (text, whole), digest = self.call.text, hashlib.sha256(_package())
        digest.update(repr((text, self.made, values)).encode())
        if not whole:
            with self.call.within(None):
                digest.update(jax.jit(self.on_one_device).lower(*values).as_text().encode())
        return digest.hexdigest()

    def on_one_device(self, *values: Array) -> list[Array]:
        return self.run(self.call.placed(None, PartitionSpec())[0], values)

    def placed(self, mesh: AnyMesh, shown: Sequence[tuple[Role, tuple[int, ...], PartitionSpec]]) -> Place:
        """The place where values or results are cut like these specs, if possible."""
        sizes, batches = axis_sizes(mesh), dict[int, Names]()
        seen = [(role, shape, from_spec(shape, sizes, spec).axes) for role, shape, spec in shown]
        for role, shape, axes in seen:
            for batch, n, names in zip(role.batches, shape, axes, strict=False):
                if n % math.prod(sizes[name] for name in names) == 0:
                    batches.setdefault(batch, names)
        used = set().union(*batches.values())
        arrays = [one for one in seen if not one[0].number and not one[0].result]
        role, _, axes = (arrays or [one for one in seen if one[0].result])[0]
        free = [tuple(name for name in names if name not in used) for names in axes[len(role.batches) :]]
        place, _, _ = self.call.placed(with_axes(mesh, AxisType.Manual), self.call.spec(free))
        return dataclasses.replace(place, batches=tuple(batches.items()))


@functools.lru_cache(maxsize=CALLS)
def tangent(work: DeferredWork, moving: tuple[int, ...]) -> DeferredWork:
    """The change of inexact results with the values at `moving`; changes follow the values."""
    many, smooth = len(work.ins), [j for j, x in enumerate(work.results) if x.dtype.kind in INEXACT]

    def run(place: Place, values: Sequence[Array]) -> list[Array]:
        given, changes = values[:many], list(values[many:])
        along = [given[j] for j in moving]
        return jax.jvp(lambda *some: [work.run(place, put(given, moving, some))[j] for j in smooth], along, changes)[1]

    outs, results = tuple(work.outs[j] for j in smooth), tuple(work.results[j] for j in smooth)
    told = tuple(work.told[j] for j in smooth) if work.told else ()
    ins = (*work.ins, *(work.ins[j] for j in moving))
    linear, made = frozenset(range(many, len(ins))), (*work.made, "tangent", moving)
    return DeferredWork(work.call, ins, outs, results, linear, run, told, made)


@functools.lru_cache(maxsize=CALLS)
def transposed(work: DeferredWork, of: tuple[int, ...], shapes: Shapes) -> DeferredWork:
    """The transpose in the values at `of`: takes the other values, then cotangents of results."""
    others, outs = tuple(j for j in range(len(work.ins)) if j not in of), tuple(work.ins[j] for j in of)

    def run(place: Place, values: Sequence[Array]) -> list[Array]:
        given, cts = put([None] * len(work.ins), others, values[: len(others)]), list(values[len(others) :])
        for j, role in enumerate(work.outs):  # each device with a part of a result pulls it back
            cts[j] = cts[j] / place.parts(place.copied(role))
        along = [ShapeDtypeStruct(place.block(role, x.shape), x.dtype) for role, x in zip(outs, shapes, strict=True)]
        back = jax.linear_transpose(lambda *some: work.run(place, put(given, of, some)), *along)
        return [summed(place, role, pulled) for role, pulled in zip(outs, back(cts), strict=True)]

    def summed(place: Place, role: Role, pulled: Array) -> Array:
        """Sums a replicated value's cotangents over devices."""
        over = tuple(sorted(place.copied(role)))
        return jax.lax.psum(pulled, over) if over else pulled

    ins = (*(work.ins[j] for j in others), *work.outs)
    linear, made = frozenset(range(len(others), len(ins))), (*work.made, "transposed", of)
    return DeferredWork(work.call, ins, outs, shapes, linear, run, made=made)


@functools.lru_cache(maxsize=CALLS)
def batched(work: DeferredWork, which: tuple[int | None, ...], size: int) -> DeferredWork:
    """The work of each element of a batch, the first dimension of some values and all results."""
    number = 1 + max((batch for role in work.ins for batch in role.batches), default=-1)

    def wider(role: Role, dim: int | None = 0) -> Role:
        return role if dim is None else role._replace(batches=(number, *role.batches))

    def run(place: Place, values: Sequence[Array]) -> list[Array]:
        one_of = dataclasses.replace(place, batches=tuple(cut for cut in place.batches if cut[0] != number))
        return jax.vmap(lambda *one: work.run(one_of, one), which)(*values)

    results = tuple(ShapeDtypeStruct((size, *x.shape), x.dtype) for x in work.results)
    free = PartitionSpec.UNCONSTRAINED
    told = tuple(at and NamedSharding(at.mesh, PartitionSpec(free, *at.spec)) for at in work.told)
    ins, outs = tuple(map(wider, work.ins, which)), tuple(map(wider, work.outs))
    return DeferredWork(work.call, ins, outs, results, work.linear, run, told, (*work.made, "batched", which, size))


@functools.lru_cache(maxsize=1)
def _package() -> bytes:
    files = sorted(Path(__file__).parent.parent.rglob("*.py"), key=str)
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).digest()


def put(values: Sequence[Any], at: Sequence[int], those: Sequence[Any]) -> list[Any]:
    new = dict(zip(at, those, strict=True))
    return [new.get(j, value) for j, value in enumerate(values)]
