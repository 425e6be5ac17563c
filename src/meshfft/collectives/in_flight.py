"""Programs on virtual CPU devices run one at a time, because XLA locks up when too many are queued.

XLA admits 32 programs at a time to a CPU device. A launch beyond that blocks a thread of the pool that the collectives
of earlier programs need, and after 40 seconds XLA ends the process. An eager call therefore waits until its input is
ready, which finishes what the caller has queued before it, and until the program before it has ended. That costs no
throughput: one program keeps all devices busy. Accelerators, single devices and traced calls are launched at once.

Invariant: the results are those of `jax.jit`; they may be deleted or donated at any time.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Sharding


class InTurn:
    """A function compiled by `jax.jit`; its first argument is a pytree of the arrays to wait for."""

    def __init__(self, function: Callable[..., Any], **options: Any):
        def ended(*args: Any) -> tuple[Any, Array]:
            return function(*args), jnp.zeros(0, np.int8)

        self.program = jax.jit(function, **options)
        self.with_token = jax.jit(functools.wraps(function)(ended), **options)

    def __call__(self, arrays: Any, *rest: Any) -> Any:
        """The result, which is ready or will be without another launch."""
        leaves = arrays if type(arrays) is tuple else jax.tree.leaves(arrays)
        values = [value for leaf in leaves if (value := _concrete(leaf)) is not None]
        if not values or len(values) < len(leaves) or not _is_crowded(values[0].sharding):
            return self.program(arrays, *rest)
        for value in values:
            value.block_until_ready()
        return _LAST.launch(self.with_token, arrays, *rest)


class _Last:
    """The token of the last program: an empty result that nobody else holds, ready when the program has ended."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.token: Array | None = None

    def launch(self, program: Callable[..., tuple[Any, Array]], *args: Any) -> Any:
        with self.lock:
            try:
                jax.block_until_ready(self.token)
            except jax.errors.JaxRuntimeError:  # whoever holds its results is told
                pass
            result, token = program(*args)
            ended = _concrete(token)
            self.token = self.token if ended is None else ended  # None for constants inside `jit`
        return result


_LAST = _Last()  # one for the process, as XLA has one pool of threads for all of its CPU devices


def _concrete(x: Any) -> Array | None:
    """The array, or the one that eager `grad` and `vmap` have wrapped; None inside `jit`."""
    while isinstance(x, jax.core.Tracer):
        x = getattr(x, "primal", getattr(x, "val", None))
    return x if isinstance(x, jax.Array) else None


@functools.lru_cache(maxsize=1024)
def _is_crowded(sharding: Sharding) -> bool:
    """Whether several CPU devices share the threads of a process."""
    first, *others = sharding.device_set
    return bool(others) and first.platform == "cpu"
