"""Programs whose equations all have one stack.

Inner functions that JAX has traced before keep the stacks of that call. XLA looks stacks of a block's program up by
number among those of the program around it and, if these are fewer, may compile without end.
"""

import _thread
import functools
import queue
from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun


def with_stack(stack: Any, function: Callable[..., list[Array]], *arrays: Array) -> list[Array]:
    """The function's results, by a program with this stack."""

    def changed(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return value.replace(jaxpr=changed(value.jaxpr))
        return value.replace(eqns=[*map(equation, value.eqns)]) if isinstance(value, Jaxpr) else value

    def equation(one: JaxprEqn) -> JaxprEqn:
        params = jax.tree.map(changed, one.params, is_leaf=lambda value: isinstance(value, Jaxpr | ClosedJaxpr))
        return one.replace(params=params, source_info=one.source_info.replace(traceback=stack))

    return list(jaxpr_as_fun(changed(jax.make_jaxpr(function)(*arrays)))(*arrays))


def current_stack() -> Any:
    return source_info_util.current().traceback


@functools.lru_cache(maxsize=1)
def empty_stack() -> Any:
    """A thread's stack, without this file."""
    source_info_util.register_exclusion(__file__)
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _thread.start_new_thread(lambda: found.put(current_stack()), ())
    return found.get()
