"""The one-shuffle ring (paper, Algorithm 1): every device sums a term over all shards and passes on the shard it holds.

Invariant: after t of p - 1 hops device i holds shard i + t (mod p): the paper's source-target pairs (c1, c0), (c2, c1),
..., (c0, c_(p-1)). The next shard is fetched before the held one is used, so that a hop overlaps a product. A barrier
ends every iteration, so that no hop is delayed.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..layout.placement import devices_along, varies_over, varying
from ..numerics.chunks import Total
from ..numerics.dtypes import real_dtype
from ..numerics.split_complex import Planes, like, split
from .wires import EXACT, Coded, Wire, carried, form_of, wire_of

Shard = TypeVar("Shard")
T = TypeVar("T")
AxisName = str | tuple[str, ...]


def one_shuffle(
    term: Callable[[Shard, Array], Total],
    shard: Shard,
    axis_name: AxisName,
    *,
    two_way: bool = False,
    prefetch: bool = True,
    wire: str | Wire = EXACT,
) -> Total:
    """The paper's one-shuffle scheme: a sum over the p shards of a ring,
    inside `shard_map`.

        total = term(shard_0, 0) + ... + term(shard_(p-1), p-1)

    Each device sends p - 1 shards to a neighbour, in collective permutes;
    with `two_way` half of them the other way at the same time, in
    ceil((p - 1) / 2) steps.

    Args:
        term: function of a shard (any pytree) and its int32 position s on the
            ring; returns a pytree of arrays to add. Algorithm 1's
            einsum(v[slice_idx], x) is term(x, slice_idx).
        shard: this device's own shard, of one shape on all devices. A leaf
            that JAX knows to be replicated is not sent.
        axis_name: the mesh axis, or several as one ring (the last runs
            fastest).
        two_way: send both ways around the ring at once.
        prefetch: fetch the next shard while the held one is used. False: as
            lines 7 and 8 of Algorithm 1, permute, then use.
        wire: name of one encoding, as "int16", done once, of a shard that is
            an array or (re, im).

    Returns:
        On each device, the sum that its own `term` gives.

    Raises:
        ValueError: two_way without prefetch: Algorithm 1 sends one way; an
            unknown wire, or one without the shard's range.
        TypeError: the wire does not encode such a shard.

    Source: Lu et al., "Large-Scale Discrete Fourier Transform on TPUs", IV-B.

    >>> mesh, P = jax.make_mesh((2,), ("x",)), jax.sharding.PartitionSpec
    >>> term = lambda shard, s: (s + 1) * shard
    >>> ring = lambda shard: mf.one_shuffle(term, shard, "x")
    >>> ring = jax.shard_map(ring, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    >>> ring(mf.shard(np.array([1.0, 10.0]), mesh, P("x"))).tolist()
    [21.0, 21.0]
    """
    if two_way and not prefetch:
        raise ValueError("two_way=True goes with prefetch=True only: Algorithm 1 sends one way")
    wire = wire if isinstance(wire, Wire) else _named(wire, shard)

    def add(total: Total | None, first: tuple[Shard, Array], *rest: tuple[Shard, Array]) -> Total:
        total = _plus(total, term(*first))
        return functools.reduce(_plus, itertools.starmap(term, rest), total)

    return ring_fold(add, shard, axis_name, two_way=two_way, prefetch=prefetch, wire=wire)


def ring_fold(
    add: Callable[..., Total],
    shard: Shard,
    axis_name: AxisName,
    *,
    two_way: bool = False,
    prefetch: bool = True,
    wire: Wire = EXACT,
) -> Total:
    """`one_shuffle` for terms that are added where they are made: add(total, (shard_s, s), ...), total None at first.
    With `two_way`, shards are added in pairs as they arrive; an even ring's middle one alone, except in a ring of
    two."""
    names, size = _ring(axis_name)
    if size == 1:
        return add(None, (shard, jnp.int32(0)))
    index = lax.axis_index(names)
    written, read = _written(shard, wire)
    sent, whole = _apart(written, names, tracked=bool(varies_over(index)))

    def numbered(total: Total | None, *held: tuple[Any, Array | int]) -> Total:
        return add(total, *((read(whole(shard)), (index + offset) % size) for shard, offset in held))

    ring = _both_ways if two_way else _one_way if prefetch else _in_turn
    return ring(numbered, sent, names, size)


def shards_added(size: int, two_way: bool) -> tuple[int, ...]:
    """Shards in each `add` of `ring_fold`; a loop counts as often as XLA may unroll it."""
    if not two_way or size == 1:
        return (1,) * min(size, 5)
    pairs = (size - 1) // 2
    return (1, *(2,) * min(pairs, 2), *(1,) * (size % 2 == 0)) if pairs else (2,)


def shards_held(size: int, two_way: bool) -> int:
    """Shards on a device at a time. XLA unrolls loops of one iteration and fetches all their shards at once."""
    if size < 3:
        return size
    if two_way:
        return size + 1 + (size > 4) if size < 7 else 7
    return size if size < 6 else 4


def ring_scatter(term: Callable[[Array], Total], axis_name: AxisName, wire: Wire = EXACT) -> Total:
    """The transpose of `one_shuffle`: sums travel, in p - 1 hops of one total, while devices compute their next terms.

        total on device j = term_0(j) + ... + term_(p-1)(j)   with device r's own term_r

    `term` takes an int32 position j and returns a pytree of arrays; every hop rounds the total on a lossy wire.
    """
    names, size = _ring(axis_name)
    if size == 1:
        return term(jnp.int32(0))
    index = lax.axis_index(names)

    def body(t: Array, total: Total) -> Total:
        return _plus(handed_on(total, names, -1, wire), term((index + 1 + t) % size))

    return lax.fori_loop(1, size, body, term((index + 1) % size))


def handed_on(shard: Shard, axis_name: AxisName, by: int, wire: Wire = EXACT) -> Shard:
    """Sends every shard to the device `by` positions ahead on the ring."""
    _, size = _ring(axis_name)
    return permuted(shard, axis_name, [(i - by) % size for i in range(size)], wire) if by % size else shard


def permuted(shard: Shard, axis_name: AxisName, sources: Sequence[int | None], wire: Wire = EXACT) -> Shard:
    """Position i of the ring receives the shard of sources[i], zeros if None; one permute per array."""
    names, _ = _ring(axis_name)
    ordered, device = devices_along(names)  # device at each position of the ring
    pairs = [(device[source], device[i]) for i, source in enumerate(sources) if source is not None]
    return cast(Shard, carried(lambda x: lax.ppermute(x, ordered, pairs), cast(Planes, shard), wire))


def _named(name: str, shard: object) -> Wire:
    if name == EXACT.name:
        return EXACT
    planes = shard if isinstance(shard, tuple) else (shard,)
    alike = len(planes) in (1, 2) and all(hasattr(x, "dtype") and x.shape == planes[0].shape for x in planes)
    if not alike or {str(x.dtype) for x in planes} not in ({"float32"}, {"float64"}, {"complex64"}, {"complex128"}):
        raise TypeError(f"wire {name!r} encodes one array, or planes (re, im), of 32 or 64 bits: use wire='exact'")
    return wire_of(name, real_dtype(planes[0].dtype))


def _written(shard: Any, wire: Wire) -> tuple[Any, Callable[[Any], Any]]:
    if not isinstance(wire, Coded):
        return shard, lambda held: held
    planes = split(shard)
    form = form_of(planes[0].shape, len(planes), wire)
    return form.encode(shard), lambda words: like(shard, form.decode(words, planes[0].dtype))


def _apart(shard: Any, names: tuple[str, ...], tracked: bool) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The leaves that travel, and the shard from them. Leaves known to be alike on the ring stay."""
    leaves, tree = jax.tree.flatten(shard)
    moves = [not tracked or not varies_over(leaf).isdisjoint(names) for leaf in leaves]

    def whole(sent: list[Any]) -> Any:
        held = iter(sent)
        every = [next(held) if move else leaf for leaf, move in zip(leaves, moves, strict=True)]
        return jax.tree.unflatten(tree, every)

    return [leaf for leaf, move in zip(leaves, moves, strict=True) if move], whole


def _together(values: T, names: tuple[str, ...], barrier: bool = True) -> T:
    """Values behind one barrier, varying over the same axes, except those alike on the ring."""
    leaves, tree = jax.tree.flatten(values)
    alike = [any(map(varies_over, leaves)) and varies_over(leaf).isdisjoint(names) for leaf in leaves]
    joined = varying([leaf for leaf, same in zip(leaves, alike, strict=True) if not same], frozenset())
    others = iter(lax.optimization_barrier(joined) if barrier else joined)
    together = [leaf if same else next(others) for leaf, same in zip(leaves, alike, strict=True)]
    return cast(T, jax.tree.unflatten(tree, together))


def _one_way(add: Callable[..., Total], shard: Shard, names: tuple[str, ...], size: int) -> Total:
    def body(t: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        held, total = carry
        return _together((handed_on(held, names, -1), add(total, (held, t))), names)

    start = _together((handed_on(shard, names, -1), add(None, (shard, 0))), names, barrier=False)
    held, total = lax.fori_loop(1, size - 1, body, start, unroll=2)  # two iterations avoid a copy
    return add(total, (held, size - 1))


def _in_turn(add: Callable[..., Total], shard: Shard, names: tuple[str, ...], size: int) -> Total:
    """The loop of Algorithm 1; barriers keep XLA from starting a hop before the product is done."""

    def body(t: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        held, total = _together(carry, names)
        held = handed_on(held, names, -1)
        held, total = _together((held, total), names)
        return held, add(total, (held, t))

    return lax.fori_loop(1, size, body, _together((shard, add(None, (shard, 0))), names, barrier=False))[1]


def _both_ways(add: Callable[..., Total], shard: Shard, names: tuple[str, ...], size: int) -> Total:
    def body(t: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        ahead, behind, total = carry
        fetched = handed_on(ahead, names, -1), handed_on(behind, names, 1)
        return _together((*fetched, add(total, (ahead, t), (behind, size - t))), names)

    pairs, ahead = (size - 1) // 2, handed_on(shard, names, -1)
    if pairs == 0:
        return add(None, (shard, 0), (ahead, 1))
    carry = _together((ahead, handed_on(shard, names, 1), add(None, (shard, 0))), names)
    ahead, behind, total = lax.fori_loop(1, pairs, body, carry)
    middle = handed_on(ahead, names, -1) if size % 2 == 0 else None
    total = add(total, (ahead, pairs), (behind, size - pairs))
    return total if middle is None else add(total, (middle, pairs + 1))


def _ring(axis_name: AxisName) -> tuple[tuple[str, ...], int]:
    names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    return names, lax.axis_size(names)


def _plus(a: Total | None, b: Total) -> Total:
    return b if a is None else jax.tree.map(jnp.add, a, b)
