"""Messages: blocks encoded as words, sent and decoded, by TPU kernels if these have enough memory.

Invariant: words have the same bits whatever encoded them, so devices of all kinds can decode them.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import Array, lax

from ..numerics.split_complex import Block, Planes, like, split
from .wire import Coded, Form, Tiled, Wire, form_like

B = TypeVar("B", bound=Block)
# (encoder, decoder) of a Tiled form by platform; a folder for a kind of device adds them.
KERNELS: dict[str, tuple[Callable[..., Array], Callable[..., Planes]]] = {}


def carried(send: Callable[[Array], Array], block: B, wire: Wire, first: int = 0) -> B:
    """The received block, in its form. `send` gets arrays with the block's `first` leading dimensions."""
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
