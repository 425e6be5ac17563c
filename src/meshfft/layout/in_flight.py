"""Launches programs on virtual CPU devices one at a time, because XLA deadlocks when too many are queued.

XLA admits 32 programs at a time to a CPU device. A further launch blocks a thread that earlier collectives need, and
after 40 seconds XLA ends the process. So an eager call waits for its input and for the previous program. Throughput is
the same, since one program keeps all devices busy.

Invariant: no other program launched here runs when one is launched.
"""

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
from jax import Array
from jax.sharding import Sharding

T = TypeVar("T")
SMALL = 2**16  # size of a result that is kept until the next launch


class _Turn:  # one per process: CPU devices share XLA's threads
    lock = threading.RLock()
    last: Array | None = None  # result of the last program, if that may still run


def in_turn(program: Callable[..., T], arrays: object, *rest: object) -> T:
    """program(arrays, *rest), launched in sequence; `arrays` is a pytree."""
    values = list[Array]()
    for leaf in _arrays(arrays):
        value = _concrete(leaf) if isinstance(leaf, jax.core.Tracer) else leaf
        if value is None:
            return program(arrays, *rest)
        values.append(value)
    if not any([_on_cpus(value.sharding) for value in values]):
        return program(arrays, *rest)
    for value in values:
        value.block_until_ready()
    with _Turn.lock:
        known = _last_has_ended()
        results = program(arrays, *rest)
        last = _concrete(_arrays(results)[-1])  # all are ready when one is
        if last is not None and not (known and math.prod(last.shape) <= SMALL):
            last.block_until_ready()
            last = None
        _Turn.last = last
    return results


def _arrays(tree: object) -> Sequence[Array]:
    """The arrays of a pytree; of a plain tuple without JAX's search, which takes microseconds beside a program."""
    if type(tree) is tuple and all([isinstance(leaf, jax.Array) for leaf in tree]):
        return tree
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


def _last_has_ended() -> bool:
    """Waits for the last program; False if its result was deleted or donated."""
    try:
        if _Turn.last is not None:
            _Turn.last.block_until_ready()
    except RuntimeError:  # deleted, or it failed; whoever holds its results gets the error
        return False
    return True


def _concrete(x: object) -> Array | None:
    """The array, unwrapped from eager `grad` and `vmap`; None inside `jit`."""
    while isinstance(x, jax.core.Tracer):
        x = getattr(x, "primal", getattr(x, "val", None))
    return x if isinstance(x, jax.Array) else None


@functools.lru_cache(maxsize=1024)
def _on_cpus(sharding: Sharding) -> bool:
    first, *others = tuple[jax.Device, ...](sharding.device_set)
    return bool(others) and first.platform == "cpu"
