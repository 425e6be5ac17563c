"""Messages: blocks written as words, sent, and read where they arrive; by kernels where these have room on a TPU.

Invariant: words have the same bits whatever wrote them, so that devices of all kinds read them.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import Array, lax

from ..numerics.split_complex import Block, Planes, like, split
from .wire import Coded, Form, Tiled, Wire, form_like

B = TypeVar("B", bound=Block)
# By platform, what encodes planes and what decodes a message of a Tiled form. A folder for a kind of device adds them.
KERNELS: dict[str, tuple[Callable[..., Array], Callable[..., Planes]]] = {}


def carried(send: Callable[[Array], Array], block: B, wire: Wire, first: int = 0) -> B:
    """What arrives of a block, in its form, where `send` takes a message to another device.

    Args:
        send: of an array with the same first dimensions, which are all that it looks at.
        first: how many dimensions come before those of a share.
    """
    if not isinstance(wire, Coded):
        return jax.tree.map(send, block)
    form = form_like(block, wire, first)
    arrived: Any = like(block, _read(form, send(_written(form, block, first)), split(block)[0], first))
    return arrived


def _written(form: Form | Tiled, block: Block, first: int) -> Array:
    def by_xla(*planes: Array) -> Array:
        return form.encode(planes, first)

    if isinstance(form, Form):
        return by_xla(*split(block))
    kernels = {where: functools.partial(encode, form, first) for where, (encode, _) in KERNELS.items()}
    return lax.platform_dependent(*split(block), **kernels, default=by_xla)


def _read(form: Form | Tiled, message: Array, given: Array, first: int) -> Planes:
    by_xla = functools.partial(form.decode, dtype=given.dtype, first=first)
    if isinstance(form, Form):
        return by_xla(message)
    kernels = {where: functools.partial(decode, form, first) for where, (_, decode) in KERNELS.items()}
    return tuple(lax.platform_dependent(message, **kernels, default=by_xla))
