"""Arrays that no memory can hold are refused by name, before any work; arrays that fit, or are only planned, are
not."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import mesh, noise

import meshfft as mf
from meshfft.layout import memory as holding
from meshfft.plans import request

LINE, SQUARE = np.ones(8, np.float32), np.ones((4, 4), np.float32)
SPEC = P("x", "y", "z")


def _cut() -> jax.Array:
    return jax.device_put(noise((8, 8, 8)), NamedSharding(mesh((2, 2, 2)), SPEC))


# Before: the process ended, an OverflowError of JAX's, NumPy's "Unable to allocate", or minutes of work.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "uncountable": (lambda: mf.fftn(SQUARE, s=(2**31, 2**31)), r"\(2147483648, 2147483648\) takes 18.4 EB.* XLA"),
    "uncountable, cut": (lambda: mf.fftn(_cut(), s=(2**31, 2**31)), "more than XLA can count: make it smaller"),
    "uncountable, traced": (lambda: jax.jit(lambda a: mf.fftn(a, s=(2**31, 2**31)))(SQUARE), "more than XLA can count"),
    "uncountable, planned": (lambda: mf.plan((4, 4), s=(2**31, 2**31))(SQUARE), "more than XLA can count"),
    "too large": (lambda: mf.fft(LINE, n=2**40), "takes 4.40 TB and this host has .* make it smaller"),
    "too large, cut": (lambda: mf.fftn(_cut(), s=(2**15,) * 3), "each of the 8 CPU devices has .* over more devices"),
    "too large, planned": (lambda: mf.plan((8,), s=(2**40,))(np.ones(8, np.complex64)), "takes 4.40 TB"),
    "real": (lambda: mf.irfft(LINE, n=2**40), r"shape \(1099511627776,\)"),
    "cosines": (lambda: mf.dct(LINE, n=2**40), "takes 4.40 TB"),
    "many points": (lambda: mf.kdftn(SQUARE, [mf.Points.uniform(10**12), None]), "takes 16.0 TB"),
    "many rows": (lambda: mf.apply_separable([mf.BlockMatrix((10**12, 8), jnp.outer)], LINE), "takes 4.00 TB"),
    "many unknowns": (lambda: mf.ikdftn(LINE, s=(10**12,), tikhonov=0.1), "10{12} unknowns by 8 samples.*fewer"),
    "zoom": (
        lambda: mf.Points.zoom(0, 1, 10**12),
        "zoom has m = 10{12} points, which takes 32.0 TB.*fewer points",
    ),
    "chirp": (lambda: mf.Points.chirp(1, 1j, 10**12), "chirp has m = 10{12}"),
    "bins": (lambda: mf.power_spectrum(LINE, bins=10**12), "bins is 10{12}, which takes 32.0 TB.*give fewer bins"),
    "bins, traced": (lambda: jax.jit(lambda a: mf.power_spectrum(a, bins=10**12).power)(LINE), "bins is 10{12}"),
    "frequencies": (lambda: mf.fftfreq(10**12), r"fftfreq\(10{12}, d\).* takes 24.0 TB"),
    "sharded frequencies": (
        lambda: mf.fftfreq(2**40, device=NamedSharding(mesh((8,)), P("x"))),
        r"a shard of np.fft.fftfreq\(1099511627776, d\) takes .* each of the 8 CPU devices has",
    ),
    "wavenumbers": (lambda: mf.wavenumbers(mf.plan((2**40,))), "1099511627776 wavenumbers.*plan fewer points"),
    "array": (lambda: mf.shard(np.broadcast_to(LINE[:1], (2**42,)), mesh((8,)), P("x")), "the array of shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_held_is_refused_before_any_work(case: str) -> None:
    """Catches an interpreter that ends, a hang, and low-level errors without the argument and the bound."""
    call, words = REFUSED[case]
    with pytest.raises(MemoryError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_lengths_beyond_any_transform_are_no_fast_ones() -> None:
    """Catches a length given for fast that no transform can have."""
    with pytest.raises(ValueError, match=r"target 5 for 10{30} parts is too large"):
        mf.next_fast_len(5, parts=10**30)


def test_shapes_beyond_all_memory_still_plan() -> None:
    """Catches a bound on running that forbids to plan."""
    pod = AbstractMesh((64, 64), ("x", "y"))
    found = mf.plan((2**17, 2**17, 2**17), mesh=pod)
    assert found.out_shape == (2**17, 2**17, 2**17) and found.peak_bytes > 2**40
    assert jax.eval_shape(lambda a: mf.fft(a, n=2**40), LINE).shape == (2**40,)


def test_the_bound_is_the_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a bound that is not of a device's share, and one that refuses what fits exactly."""
    x, nbytes = _cut(), 8**3 * 8
    for room, fits in ((nbytes, True), (nbytes // 2 - 8, False)):
        monkeypatch.setattr(holding, "host", lambda room=room: holding.Room(room, "this host"))
        for cache in (holding.room, request._by_sharding):
            cache.cache_clear()
        if fits:
            mf.fftn(x)
        else:
            with pytest.raises(MemoryError, match="takes 256 B and each of the 8 CPU devices has 255 B"):
                mf.fftn(x)
    for cache in (holding.room, request._by_sharding):
        cache.cache_clear()


def test_the_most_that_an_allocator_gave() -> None:
    """Catches the bytes of another device than the fullest, and 0 for CPU devices, which do not count them."""
    counted = [mock.Mock(memory_stats=lambda n=n: {"peak_bytes_in_use": n}) for n in (5, 7, 6)]
    assert holding.allocated(counted) == 7
    assert holding.allocated(jax.devices()) is None
