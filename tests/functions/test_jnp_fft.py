"""jax.numpy.fft by meshfft, for programs that call it: sharded arrays, JAX's own functions, and its end."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error, mesh, noise

import meshfft as mf
from meshfft.inspect.hlo import collectives

KINDS = (AxisType.Auto, AxisType.Explicit)


def _layer(x: Array, weights: Array) -> Array:
    """A layer of a Fourier neural operator, as its authors write it."""
    spectrum = jnp.fft.rfftn(x, axes=(1, 2), norm="ortho")
    return jnp.fft.irfftn(spectrum * weights, s=x.shape[1:], axes=(1, 2), norm="ortho")


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_is_sharded_by_one_line(kind: AxisType) -> None:
    """Catches a call that still gathers, another number, and a gradient that JAX's functions do not have."""
    x, weights = noise((4, 8, 12), "float32"), noise((1, 8, 7), "complex64", 1)
    array = jax.device_put(x, NamedSharding(mesh((2, 4), kind), P("x", "y")))
    gradient = jax.value_and_grad(lambda w, x: jnp.sum(_layer(x, w) ** 2), 1)
    loss, want = gradient(weights, x)
    gathers = jax.jit(gradient).lower(weights, array).compile()
    with mf.jnp_fft():
        program = jax.jit(lambda *given: gradient(*given)).lower(weights, array).compile()
    found = program(weights, array)
    assert error(found[0], loss) <= 1e-6 and error(found[1], want) <= 1e-6
    assert "all-gather" in collectives(gathers) and "all-gather" not in collectives(program)


def test_every_name_with_the_arguments_of_jax() -> None:
    """Catches a name that stays JAX's, an argument that is not passed on, and one that JAX does not have."""
    x = noise((8, 6), "complex64")
    a = jax.device_put(x, NamedSharding(mesh((8,)), P("x")))
    original = {name: value for name, value in vars(jnp.fft).items() if callable(value)}
    with mf.jnp_fft():
        for name, theirs in original.items():
            ours = getattr(jnp.fft, name)
            if name in ("fftfreq", "rfftfreq"):
                assert ours is theirs
                continue
            real = name.startswith(("rfft", "ihfft"))
            given, plain = (a.real, x.real) if real else (a, x)
            some = (0, 1) if "2" in name else (0,)
            named: dict[str, Any] = {"axes": some} if "axes" in inspect.signature(theirs).parameters else {"axis": 0}
            y = ours(given, **named)
            assert y.shape == theirs(plain, **named).shape and error(y, theirs(plain, **named)) <= 1e-6, name
            with pytest.raises(TypeError):
                ours(given, order="any")
    assert {name: getattr(jnp.fft, name) for name in original} == original


def test_what_stays_jaxs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a whole array, or a block of a shard_map, that is planned, and kernels that call themselves."""
    devices, x = mesh((8,)), noise((8, 8))
    monkeypatch.setattr(mf.functions.fourier, "fft", None)
    with mf.jnp_fft():
        want = np.fft.fft(x)
        assert error(jnp.fft.fft(jnp.asarray(x)), want) <= 1e-6 and error(jax.jit(jnp.fft.fft)(x), want) <= 1e-6
        assert error(jnp.fft.fft(jax.device_put(x, NamedSharding(devices, P()))), want) <= 1e-6
        run = jax.jit(jax.shard_map(lambda x: jnp.fft.fft(x), mesh=devices, in_specs=P("x"), out_specs=P("x")))
        assert error(run(x), want) <= 1e-6
    monkeypatch.undo()
    with mf.jnp_fft():
        assert error(jnp.fft.fftn(jax.device_put(x, NamedSharding(devices, P("x")))), np.fft.fftn(x)) <= 1e-6


def test_it_ends_with_the_block() -> None:
    """Catches functions that stay replaced after an error, and nested blocks that restore the wrong ones."""
    original = jnp.fft.fftn
    with pytest.raises(ZeroDivisionError), mf.jnp_fft(), mf.jnp_fft():
        raise ZeroDivisionError
    assert jnp.fft.fftn is original

    @mf.jnp_fft()
    def replaced() -> bool:
        return jnp.fft.fftn is not original

    assert replaced() and jnp.fft.fftn is original
