"""Facts read from compiled programs: collectives in two halves, cycles, sizes, and kinds of work."""

import re
from typing import Any

import pytest
from reference import mesh

import meshfft as mf
from meshfft.inspect.aot import compile_plan
from meshfft.inspect.hlo import (
    KernelRuns,
    bytes_of,
    cycles,
    every_collective,
    kernels,
    ops_of,
    priced,
    program_of,
    unit,
)
from meshfft.inspect.schedule import parse
from meshfft.machine.chips import CHIPS
from meshfft.tpu import price as kernel_price

# Two permutes in flight, a plain one, and a wrapped all-to-all of tuples; products, concatenations and sums beside.
PAIRS = """HloModule pairs, is_scheduled=true

%dense (a: f32[8,8], b: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8]{1,0:T(8,128)} parameter(0)
  %b = f32[8,8]{1,0:T(8,128)} parameter(1)
  ROOT %convolution.1 = f32[8,8]{1,0:T(8,128)} convolution(%a, %b), dim_labels=bf_io->bf
}

%nested (c: f32[8,8]) -> f32[8,8] {
  %c = f32[8,8]{1,0:T(8,128)} parameter(0)
  %fusion.0 = f32[8,8]{1,0:T(8,128)} fusion(%c, %c), kind=kOutput, calls=%dense
  ROOT %sum.0 = f32[8,8]{1,0:T(8,128)} add(%fusion.0, %c)
}

%join (d: f32[4,8], e: f32[4,8]) -> f32[8,8] {
  %d = f32[4,8]{1,0:T(8,128)} parameter(0)
  %e = f32[4,8]{1,0:T(8,128)} parameter(1)
  %least = f32[]{:T(128)} constant(-inf)
  %pad.1 = f32[8,8]{1,0:T(8,128)} pad(%d, %least), padding=0_4x0_0
  %pad.2 = f32[8,8]{1,0:T(8,128)} pad(%e, %least), padding=4_0x0_0
  ROOT %maximum.1 = f32[8,8]{1,0:T(8,128)} maximum(%pad.1, %pad.2)
}

%rectify (g: f32[8,8], h: f32[8,8]) -> f32[8,8] {
  %g = f32[8,8]{1,0:T(8,128)} parameter(0)
  %h = f32[8,8]{1,0:T(8,128)} parameter(1)
  ROOT %maximum.2 = f32[8,8]{1,0:T(8,128)} maximum(%g, %h)
}

%cut (k: f32[8,8], i: s32[]) -> f32[4,8] {
  %k = f32[8,8]{1,0:T(8,128)} parameter(0)
  %i = s32[]{:T(128)} parameter(1)
  %twice = s32[]{:T(128)} add(%i, %i)
  ROOT %part.1 = f32[4,8]{1,0:T(8,128)} dynamic-slice(%k, %twice, %i), dynamic_slice_sizes={4,8}
}

%wrapped (m: bf16[2,8], n: bf16[2,8]) -> (bf16[2,8], bf16[2,8]) {
  %m = bf16[2,8]{1,0} parameter(0)
  %n = bf16[2,8]{1,0} parameter(1)
  ROOT %exchange = (bf16[2,8]{1,0}, bf16[2,8]{1,0}) all-to-all(%m, %n), replica_groups={{0,2},{1,3}}
}

ENTRY %main (x: f32[8,8], u: f32[4,8], v: bf16[2,8], i: s32[]) -> f32[8,8] {
  %x = f32[8,8]{1,0:T(8,128)} parameter(0)
  %u = f32[4,8]{1,0:T(8,128)} parameter(1)
  %v = bf16[2,8]{1,0} parameter(2)
  %i.2 = s32[]{:T(128)} parameter(3)
  %start.1 = (f32[8,8]{1,0:T(8,128)}, f32[8,8]{1,0:T(8,128)}, u32[]{:S(2)}) collective-permute-start(%x), \
source_target_pairs={{0,1},{1,2},{2,0}}, metadata={op_name="jit(f)/step0_RingDense/ppermute"}
  %fusion.1 = f32[8,8]{1,0:T(8,128)} fusion(%x), kind=kOutput, calls=%nested, \
metadata={op_name="jit(f)/step0_RingDense/dot"}, backend_config={"window_config":{},"estimated_cycles":"100"}
  %start.2 = (f32[8,8]{1,0:T(8,128)}, f32[8,8]{1,0:T(8,128)}, u32[]{:S(2)}) collective-permute-start(%fusion.1), \
source_target_pairs={{0,1},{1,0}}
  %fusion.2 = f32[8,8]{1,0:T(8,128)} fusion(%u, %u), kind=kLoop, calls=%join, backend_config={"estimated_cycles":"20"}
  %done.1 = f32[8,8]{1,0:T(8,128)} collective-permute-done(%start.1)
  %fusion.3 = f32[8,8]{1,0:T(8,128)} fusion(%x, %done.1), kind=kLoop, calls=%rectify, \
metadata={op_name="jit(f)/step9/jit(g)/step1_Exchange/max"}, backend_config={"estimated_cycles":"3"}
  %done.2 = f32[8,8]{1,0:T(8,128)} collective-permute-done(%start.2)
  %reshape.1 = f32[64]{0:T(256)} reshape(%x)
  %start.3 = ((bf16[2,8], bf16[2,8]), (bf16[2,8], bf16[2,8]), u32[]) async-start(%v, %v), calls=%wrapped
  %update.3 = ((bf16[2,8], bf16[2,8]), (bf16[2,8], bf16[2,8]), u32[]) async-update(%start.3)
  %fusion.4 = f32[4,8]{1,0:T(8,128)} fusion(%x, %i.2), kind=kLoop, calls=%cut, backend_config={"estimated_cycles":"5"}
  %done.3 = (bf16[2,8]{1,0}, bf16[2,8]{1,0}) async-done(%update.3)
  ROOT %last = f32[8,8]{1,0:T(8,128)} collective-permute(%done.2), source_target_pairs={{0,1}}
}
"""


def test_collectives_in_two_halves() -> None:
    """Catches halves counted twice, work outside a pair counted as under it, and a wrapped collective unseen."""
    first, second, wrapped, last = every_collective(parse(PAIRS))
    assert first == ("start.1", "collective-permute", 0, 1, 256, True, 100 + 20)
    assert second == ("start.2", "collective-permute", 0, 1, 256, True, 20 + 3)
    assert wrapped == ("start.3", "all-to-all", 1, 1, 2 * 2 * 8 * 2, True, 5)
    assert last == ("last", "collective-permute", 1, 1, 256, False, 0)
    unscheduled = parse(PAIRS.replace("is_scheduled=true", ""))
    assert [one.covered for one in every_collective(unscheduled)] == [0] * 4, "the order of the text means nothing"
    with pytest.raises(ValueError, match=re.escape("collective start.2 is started and never waited for")):
        every_collective(parse(PAIRS.replace("collective-permute-done(%start.2)", "copy(%x)")))


def test_cycles_by_step_and_unit() -> None:
    """Catches a product hidden in a nested fusion, a concatenation taken for work, and an index taken for it."""
    assert cycles(parse(PAIRS)) == ((0, "matrix", 100), (0, "copy", 20), (1, "vector", 3), (1, "copy", 5))
    program = parse(PAIRS)
    top = program.computations["rectify"]["maximum.2"]
    assert unit(program, top) == "vector", "a maximum of what stands elsewhere is no concatenation"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[2,1024,512,512]{3,1,2,0:T(8,128)}", 2**31),
        ("(f32[8]{0:T(256)}, /*index=1*/c64[3,5]{1,0:T(8,128)S(1)}, pred[7]{0:T(1024)(128)(4,1)})", 32 + 120 + 7),
        ("((bf16[4,4]{1,0}), s8[9], u32[]{:S(2)}, token[])", 32 + 9 + 4),
        ("f8e4m3fn[16]", 16),
        ("c128[2]", 32),
        ("s4[6]", 3),
        ("f32[0,8]", 0),
        ("()", 0),
    ],
)
def test_sizes_of_types(text: str, size: int) -> None:
    """Catches a type misread: layouts, tiles, nested tuples, scalars, truth values, halves of a byte."""
    assert bytes_of(text) == size


SLAB, PENCIL = (2,), (2, 2)


EXCHANGED, PACKED, RING = {"fft", "all-to-all"}, {"fft", "all-to-all", "permute"}, {"products", "permute"}


@pytest.mark.quick(0, 1)
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
    """Catches a product that a fusion hides, packing counted as arithmetic, an FFT by dots, and a separate -done."""
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
    assert kernels(program) == KernelRuns(2, sum(price))
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
    assert kernels(parse(text)) == KernelRuns(0, 0)
