"""Messages: blocks written as words, sent, and read where they arrive; by kernels where these have room on a TPU.

Invariant: words have the same bits whatever wrote them, so that devices of all kinds read them.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import Array, lax

from ..numerics.split_complex import Block, Planes, like, split
from . import wire_kernels
from .wire import Form, Tiled, Wire, form_like

B = TypeVar("B", bound=Block)


def carried(send: Callable[[Array], Array], block: B, wire: Wire, first: int = 0) -> B:
    """What arrives of a block, in its form, where `send` takes a message to another device.

    Args:
        send: of an array with the same first dimensions, which are all that it looks at.
        first: how many dimensions come before those of a share.
    """
    if not wire.lossy:
        return jax.tree.map(send, block)
    form = form_like(block, wire, first)
    arrived: Any = like(block, _read(form, send(_written(form, block, first)), split(block)[0], first))
    return arrived


def _written(form: Form | Tiled, block: Block, first: int) -> Array:
    def by_xla(*planes: Array) -> Array:
        return form.encode(planes, first)

    if isinstance(form, Form):
        return by_xla(*split(block))
    by_kernel = functools.partial(wire_kernels.encode, form, first)
    return lax.platform_dependent(*split(block), tpu=by_kernel, default=by_xla)


def _read(form: Form | Tiled, message: Array, given: Array, first: int) -> Planes:
    by_xla = functools.partial(form.decode, dtype=given.dtype, first=first)
    if isinstance(form, Form):
        return by_xla(message)
    by_kernel = functools.partial(wire_kernels.decode, form, first)
    return tuple(lax.platform_dependent(message, tpu=by_kernel, default=by_xla))
