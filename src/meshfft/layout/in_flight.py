"""Programs on virtual CPU devices run one at a time, because XLA locks up when too many are queued.

XLA admits 32 programs at a time to a CPU device. A further launch blocks a thread that the collectives of earlier
programs need, and after 40 seconds XLA ends the process. So an eager call waits for its input, which finishes what the
caller has queued, and for the program before it. That costs no throughput: one program keeps all devices busy.
Accelerators, single devices and traced calls are launched at once.

Invariant: when a program is launched, no other launched here is running.
"""

import functools
import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import Array
from jax.sharding import Sharding

T = TypeVar("T")
SMALL = 2**16  # numbers of a result that may be held until the next launch


class _Turn:
    """Who may launch, and a result of the last program if that may still be running."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.last: Array | None = None


_TURN = _Turn()  # one for the process, as XLA has one pool of threads for all of its CPU devices


def in_turn(program: Callable[..., T], arrays: object, *rest: object) -> T:
    """Returns program(arrays, *rest) of a compiled program, launched when its turn comes; `arrays` is a pytree."""
    crowded, values = False, []
    for leaf in jax.tree.leaves(arrays):
        if isinstance(leaf, jax.Array):
            value = _concrete(leaf)
            if value is None:
                return program(arrays, *rest)
            crowded = crowded or _on_cpus(value.sharding)
            values.append(value)
    if not crowded:
        return program(arrays, *rest)
    for value in values:
        value.block_until_ready()
    with _TURN.lock:
        known = _last_has_ended()
        results = program(arrays, *rest)
        last = _concrete(jax.tree.leaves(results)[-1])  # each is ready when all are
        if last is not None and not (known and _is_small(last.shape)):
            last.block_until_ready()
            last = None
        _TURN.last = last
    return results


def _last_has_ended() -> bool:
    """Waits for the last program; False if its result was deleted or donated, so nothing tells its end."""
    try:
        if _TURN.last is not None:
            _TURN.last.block_until_ready()
    except RuntimeError:  # deleted; or it failed, which whoever holds its results is told
        return False
    return True


def _concrete(x: object) -> Array | None:
    """The array, or the one that eager `grad` and `vmap` have wrapped; None inside `jit`."""
    while isinstance(x, jax.core.Tracer):
        x = getattr(x, "primal", getattr(x, "val", None))
    return x if isinstance(x, jax.Array) else None


@functools.lru_cache(maxsize=1024)
def _is_small(shape: tuple[int, ...]) -> bool:
    return math.prod(shape) <= SMALL


@functools.lru_cache(maxsize=1024)
def _on_cpus(sharding: Sharding) -> bool:
    """Whether an array is on several CPU devices, which share the threads of a process."""
    first, *others = tuple[Any, ...](sharding.device_set)
    return bool(others) and first.platform == "cpu"
