"""Loops over a block in chunks of lines, which bound temporaries, and sums over runs of columns."""

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from .split_complex import LANES, Planes

CHUNK = 2**19  # numbers, if the sizes divide
RUNS = 16  # summed one by one into a partial sum
Total = TypeVar("Total")
AddRun = Callable[[Array | int, int, Total | None], Total]  # a start, a size, the total so far
OnChunk = Callable[[Planes, Planes | None], Planes]  # arrays, and those it may write to


def chunks(shape: tuple[int, ...], dim: int) -> tuple[int, int]:
    """A dimension other than `dim`, and its number of equal parts of about CHUNK numbers."""
    numbers, best = math.prod(shape), (dim, 1)
    for other in (d for d in range(len(shape)) if d != dim):
        whole = LANES if other == len(shape) - 1 else 1  # TPU registers
        fine = [n for n in range(1, shape[other] + 1) if shape[other] % n == 0 and shape[other] // n % whole == 0]
        many = next((n for n in fine if n * CHUNK >= numbers), max(fine, default=1))
        best = max(best, (other, many), key=lambda one: (min(one[1] * CHUNK, numbers), -one[1]))
    return best


def in_chunks(arrays: Planes, out: Planes | None, dim: int, made: OnChunk, leaves: Iterable[Array] = ()) -> Planes:
    """Applies `made` to chunks of lines along `dim`, into `out` or an array varying over the axes of `leaves`."""
    shape = (arrays or out or ())[0].shape
    other, many = chunks(shape, dim)
    if many == 1:
        return made(arrays, out)
    size, given = shape[other] // many, out is not None

    def lines(i: Array | int, out: Planes | None) -> Planes:
        # Without the barriers the TPU compiler copies the whole block in every iteration, to the layout that suits one
        # chunk.
        cut = lambda x: lax.dynamic_slice_in_dim(x, i * size, size, other)  # noqa: E731
        mine = tuple(map(cut, arrays)), tuple(map(cut, out)) if out is not None and given else None
        return lax.optimization_barrier(made(*lax.optimization_barrier(mine)))

    if out is None:
        each = jax.eval_shape(lambda: lines(0, None))
        full = [tuple(n * many if d == other else n for d, n in enumerate(one.shape)) for one in each]
        out = tuple(varied(lax.empty(n, one.dtype), (*arrays, *leaves)) for n, one in zip(full, each, strict=True))

    def turn(state: tuple[Array, Planes]) -> tuple[Array, Planes]:
        i, out = state
        pairs = zip(out, lines(i, out), strict=True)
        done = tuple(lax.dynamic_update_slice_in_dim(whole, part, i * size, other) for whole, part in pairs)
        return i + 1, done

    # On TPUs a 64-bit counter is a pair, and the compiler finds no trip count.
    return lax.while_loop(lambda state: state[0] < many, turn, (jnp.int32(0), out))[1]


def in_runs(n: int, size: int, run: AddRun[Total], total: Total | None, together: bool = True) -> Total:
    """Adds `run(start, size, total)` over n columns, one by one or `together` in groups of RUNS."""
    first, single, many = runs(n, size, together)

    def several(i: Array, total: Total) -> Total:
        start = first + (single + i * RUNS) * size
        head = run(start, size, None)
        return jax.tree.map(jnp.add, total, lax.fori_loop(1, RUNS, lambda j, t: run(start + j * size, size, t), head))

    done = run(0, first, total)
    if single:
        done = lax.fori_loop(0, single, lambda i, t: run(first + i * size, size, t), done)
    return lax.fori_loop(0, many, several, done) if many else done


def runs(n: int, size: int, together: bool = True) -> tuple[int, int, int]:
    """Columns of the first run, and numbers of single runs and of groups of RUNS."""
    first = n % size or min(size, n)
    left = (n - first) // size
    many = max(left - 1, 0) // RUNS if together else 0
    return first, left - many * RUNS, many


def varied(out: Array, leaves: Iterable[Array]) -> Array:
    """Marks an array as varying over the mesh axes of all leaves, as a loop carry must; XLA folds this."""
    for leaf in leaves:
        one = jnp.ravel(leaf)[0]
        out = jnp.where(one == one, out, out)
    return out
