"""What instructions do: the kinds of work of every walk, of fusions, and of collectives in two halves."""

from typing import Any

import pytest
from reference import mesh

import meshfft as mf
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import Kernels, cycles, kernels, ops_of, priced, program_of
from meshfft.inspect.schedule import parse
from meshfft.machine.chip import CHIPS
from meshfft.tpu import price as kernel_price

SLAB, PENCIL = (2,), (2, 2)
EXCHANGED, PACKED, RING = {"fft", "all-to-all"}, {"fft", "all-to-all", "permute"}, {"products", "permute"}


@pytest.mark.parametrize(
    ("shape", "sizes", "options", "must", "may"),
    [
        ((16, 8, 24), SLAB, {"method": "transpose"}, EXCHANGED, {"copies"}),
        ((8, 10), PENCIL, {"method": "kdft"}, RING, {"copies", "other"}),
        ((64, 6), SLAB, {"method": "cooley-tukey"}, {*PACKED, "other"}, {"copies"}),
        ((16, 8, 24), SLAB, {"method": "transpose", "kind": "rfft"}, EXCHANGED, {"copies"}),
        ((128, 4), SLAB, {"method": "cooley-tukey", "kind": "rfft", "axes": (0,)}, PACKED, {"copies", "other"}),
        ((16, 16), SLAB, {"method": "kdft", "kind": "rfft", "axes": (0,)}, RING, {"copies", "other"}),
        ((16, 16), SLAB, {"method": "transpose", "kind": "dct-2"}, EXCHANGED, {"copies", "other"}),
        ((16, 10), SLAB, {"method": "kdft", "kind": "dct-3", "axes": (0,)}, RING, {"copies", "other"}),
    ],
    ids=["slab", "kdft", "cooley-tukey", "real slab", "packed", "real kdft", "cosine slab", "cosine kdft"],
)  # fmt: skip
def test_kinds_of_every_walk(
    shape: tuple[int, ...], sizes: tuple[int, ...], options: dict[str, Any], must: set[str], may: set[str]
) -> None:
    """Catches a product taken for an FFT, or the other way round, and messages of another kind than the step's."""
    plan = mf.plan(shape, mesh=mesh(sizes), **options)
    ops = {name: op for name, op in ops_of(program_of(compile_plan(plan, mesh(sizes)))).items() if op is not None}
    kinds = {op.kind for op in ops.values()}
    assert must <= kinds <= must | may
    wholes = {name for name, op in ops.items() if op.kind in ("fft", "products")}
    types = [type(step).__name__ for step in plan.walk.steps]
    for name in wholes:
        assert types[max(ops[name].step - 1, 0)] != "Exchange", f"{name} is at work in an exchange"


def test_kinds_of_fusions_and_halves() -> None:
    """Catches a product that a fusion hides, packing taken for arithmetic, an FFT by dots, and a -done of its own."""
    text = """HloModule m, is_scheduled=true

%dense (a: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8] parameter(0)
  %d = f32[8,8] dot(%a, %a), lhs_contracting_dims={1}
  ROOT %s = f32[8,8] add(%d, %a)
}

%pack (b: f32[8,8]) -> c64[8,8] {
  %b = f32[8,8] parameter(0)
  ROOT %c = c64[8,8] complex(%b, %b)
}

ENTRY %main (x: f32[8,8]) -> c64[8,8] {
  %x = f32[8,8] parameter(0)
  %f.1 = f32[8,8] fusion(%x), calls=%dense, metadata={op_name="jit(f)/step0_RingDense/dot_general"}
  %f.2 = f32[8,8] fusion(%f.1), calls=%dense, metadata={op_name="jit(f)/step1_LocalFFT/jit(fft)/dot.3"}
  %f.3 = f32[8,8] negate(%f.2), metadata={op_name="jit(f)/step1_LocalFFT/fft/while/body/neg"}
  %f.4 = f32[8,8] copy(%f.3), metadata={op_name="jit(f)/step1_LocalFFT/fft/while/body/copy"}
  %f.5 = f32[8,8] custom-call(%f.4), custom_call_target="__cublas$gemm"
  %g.1 = ((f32[8,8]), f32[8,8]) all-to-all-start(%f.5), metadata={op_name="jit(f)/step2_Exchange/all_to_all"}
  %f.6 = f32[8,8] negate(%x), metadata={op_name="jit(f)/step3_PhaseFFT/fft_phase/mul"}
  %g.2 = f32[8,8] all-to-all-done(%g.1)
  %h.1 = f32[8,8] all-reduce(%g.2), to_apply=%dense
  ROOT %f.7 = c64[8,8] fusion(%h.1), calls=%pack
}
"""
    kinds = {
        "x": None, "f.1": (1, "products"), "f.2": (2, "fft"), "f.3": (2, "fft"), "f.4": (2, "copies"),
        "f.5": (2, "products"), "g.1": (3, "all-to-all"), "f.6": (4, "other"), "g.2": (3, "all-to-all"),
        "h.1": (4, "other"), "f.7": (4, "copies"),
    }  # fmt: skip
    assert ops_of(parse(text)) == kinds


def test_kernels_are_priced_by_name_and_bytes() -> None:
    """Catches an FFT kernel that costs nothing, both planes or lengths misread, and a price for another's kernel."""
    text = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[64,512,512]) -> f32[64,512,512] {
  %x = f32[64,512,512] parameter(0)
  %k.1 = (f32[64,512,512], f32[64,512,512]) custom-call(%x), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/step1_LocalFFT/fft/fft_plane_512x512/pallas_call"}
  %k.2 = f32[4,2,16,128,512] custom-call(%x), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/step2_Pipeline/fft_plane_512x512/pallas_call"}
  ROOT %k.3 = f32[64,512,512] custom-call(%x), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/step3_Turn/spreading/pallas_call"}
}
"""  # noqa: E501
    chip, points = CHIPS["v5e"], 64 * 512 * 512
    price = [kernel_price.cycles(chip, "plane", (512, 512), n) for n in (points, points // 4)]
    assert min(price) > 16 * points / 4 / 428.1, "less than memory takes"
    program = priced(parse(text), chip)
    assert kernels(program) == Kernels(2, sum(price))
    assert [(one.step, one.unit, one.cycles) for one in cycles(program)] == [
        (1, "vector", price[0]),
        (2, "vector", price[1]),
    ]
    assert {name: op and op.kind for name, op in ops_of(program).items()} == {
        "x": None,
        "k.1": "fft",
        "k.2": "fft",
        "k.3": "other",
    }
    assert kernels(parse(text)) == Kernels(0, 0)
