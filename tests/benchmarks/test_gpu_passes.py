"""Passes over memory: counted in compiled text, and for described H100s, which need XLA's compiler for CUDA, no GPU."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchmarks.measure.cases import Case, Task
from benchmarks.passes import counted, passed
from meshfft.inspect.hlo import program_of
from meshfft.inspect.schedule import parse

COMPILER = any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
DESCRIBED = pytest.mark.skipif(not COMPILER, reason="needs XLA's compiler for CUDA: benchmarks/README.md, Several GPUs")


def test_bytes_are_those_that_are_touched() -> None:
    """Catches an operand counted whole although only a slice is read, an array updated in place counted in every
    iteration, and a repeated instruction counted once."""

    def rows(x: jax.Array) -> jax.Array:
        def turn(i: jax.Array, x: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(x, jnp.sin(lax.dynamic_slice_in_dim(x, i, 1)), i, 0)

        return lax.fori_loop(0, 64, turn, x)

    compiled = jax.jit(rows, donate_argnums=0).lower(jax.ShapeDtypeStruct((64, 4096), np.float32)).compile()
    found, array = sum(passed(program_of(compiled)).values()), 4 * 64 * 4096
    assert 2 * array <= found <= 2.1 * array
    text = """HloModule m, is_scheduled=true

%put (array: f32[64,8], row: f32[1,8], i: s32[]) -> f32[64,8] {
  %array = f32[64,8] parameter(0)
  %row = f32[1,8] parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %new = f32[64,8] dynamic-update-slice(%array, %row, %i, %zero)
}

ENTRY %main (a: f32[64,8], r: f32[1,8], j: s32[]) -> f32[64,8] {
  %a = f32[64,8] parameter(0)
  %r = f32[1,8] parameter(1)
  %j = s32[] parameter(2)
  ROOT %fusion = f32[64,8] fusion(%a, %r, %j), kind=kLoop, calls=%put
}
"""
    assert sum(passed(parse(text)).values()) == 2 * 8 * 4 + 4, "a row read, a row written, and where"
    turned = jax.jit(jnp.transpose).lower(jax.ShapeDtypeStruct((64, 4096), np.float32)).compile()
    assert passed(program_of(turned)) == {"copies": 2 * array}


@pytest.mark.slow
@DESCRIBED
@pytest.mark.parametrize(
    ("sizes", "kind", "order", "lost", "sends"),
    [
        ((8,), "fft", "natural", 4, 2),
        ((8,), "fft", "any", 3, 1),
        ((8,), "rfft", "natural", 2, 2),
        ((4, 2), "fft", "natural", 4, 2),
        ((4, 2), "fft", "any", 3, 1),
        ((2, 2, 2), "fft", "natural", 5, 3),
        ((2, 2, 2), "fft", "any", 4, 2),
        ((2, 2, 2), "rfft", "natural", 2.5, 3),
    ],
)
def test_one_transposition_where_calls_meet_shares(
    sizes: tuple[int, ...], kind: str, order: str, lost: float, sends: int
) -> None:
    """Catches an extra copy, packing or all-to-all between cuFFT's calls in programs for 8 H100s."""
    task = Task((512,) * 3, "float32" if kind == "rfft" else "complex64", kind)
    row = counted(Case(task, "meshfft", sizes, method="auto", order=order))
    found = dict(row["passes"])
    assert row["all_to_alls"] == sends and found.pop("fft") <= (1.03 if kind == "rfft" else 2)
    assert found.pop("all-to-all") == pytest.approx(sends / (2 if kind == "rfft" else 1), rel=0.03)
    assert sum(found.values()) == pytest.approx(lost, rel=0.03)
