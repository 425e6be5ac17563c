"""The price of kernels that write and read words."""

import pytest

from meshfft.collectives.words import BITS
from meshfft.inspect.hlo import Kernels, kernels, parse, priced
from meshfft.machine.chip import CHIPS, TPUS, Chip
from meshfft.tpu.price import wire_cycles, wire_table


@pytest.mark.parametrize("chip", TPUS, ids=lambda chip: chip.name)
def test_every_tpu_has_prices_above_memory(chip: Chip) -> None:
    """Catches a chip, a way, a width or a tile left out, and a price below what memory or bundles take."""
    assert chip.clock is not None
    for way in ("encode", "decode"):
        for bits in (n + 1 for n in BITS.values()):
            memory = (4 + bits / 8) * chip.clock.value / chip.memory.value
            for rows in (2, 4, 8):
                bundles = wire_table()[chip.name][f"{way}{bits}"][str(rows)]
                assert 10**6 * max(bundles, memory) <= wire_cycles(chip, way, bits, rows, 10**6) + 1
                assert wire_cycles(chip, way, bits, rows, 10**6) <= 1.01e6 * max(bundles, memory)


def test_kernels_are_priced_by_name_and_bytes() -> None:
    """Catches a kernel that costs nothing, and words counted as numbers or numbers as words."""
    text = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[64,64,4,128]) -> f32[64,64,4,128] {
  %x = f32[64,64,4,128] parameter(0)
  %w.1 = u32[64,1,33,4,128] custom-call(%x), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/step1_Pipeline/cond/branch_0_fun/wire_encode16_4/pallas_call"}
  ROOT %r.2 = f32[64,64,4,128] custom-call(%w.1), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/step1_Pipeline/cond/branch_0_fun/wire_decode16_4/pallas_call"}
}
"""  # noqa: E501
    chip, reals = CHIPS["v3"], 64 * 64 * 4 * 128
    found, both = (
        kernels(priced(parse(text), chip)),
        [wire_cycles(chip, way, 16, 4, reals) for way in ("encode", "decode")],
    )
    assert found.times == 2 and sum(both) <= found.cycles <= 1.02 * sum(both)
    assert kernels(parse(text)) == Kernels(0, 0)
