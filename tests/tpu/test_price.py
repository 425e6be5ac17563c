"""The prices of kernels: of FFTs, and of those that write and read words."""

import math

import pytest

from meshfft.collectives.wires import Int16, Int24
from meshfft.inspect.hlo import KernelRuns, kernels, parse, priced
from meshfft.machine.chip import Chip
from meshfft.machine.chips import CHIPS, TPUS
from meshfft.tpu.lines.radices import dft, times
from meshfft.tpu.price import OPERATIONS, bundles, cycles, is_real, table, wire_cycles, wire_table


class Counted:
    """A number that counts the operations on it and on all its copies."""

    done = 0

    def _done(self, *_: object) -> "Counted":
        Counted.done += 1
        return Counted()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _done


@pytest.mark.parametrize("radix, factors", [(8, 3), (3, 1), (5, 1), (7, 1)])
def test_operations_are_those_of_the_butterflies(radix: int, factors: int) -> None:
    """Catches estimates by other operations than the kernels have."""
    Counted.done = 0
    for y in dft([(Counted(), Counted()) for _ in range(radix)], -1)[1:]:  # type: ignore[misc]
        times(y, (Counted(), Counted()))  # type: ignore[arg-type]
    assert Counted.done / radix == pytest.approx(factors * OPERATIONS[radix if factors == 1 else 2], rel=0.05)


@pytest.mark.parametrize("chip", TPUS, ids=lambda chip: chip.name)
def test_every_tpu_has_prices_above_memory(chip: Chip) -> None:
    """Catches a chip or a kind left out, a price below what memory takes, and an estimate that passes for a count."""
    assert chip.clock is not None
    memory = 16 * chip.clock.value / chip.memory.value
    for kind, rows in table()[chip.name].items():
        for lengths, price in rows.items():
            assert bundles(chip.name, kind, lengths) == price
            least = memory / 2 if is_real(kind) else memory
            assert cycles(chip, kind, lengths, 10**6) >= round(1e6 * max(price, least))
    assert {"plane", "lane", "sublane", "first", "halflane", "realplane"} <= set(table()[chip.name])
    assert cycles(chip, "lane", (64,), 10**6) >= round(2e6 * memory)  # half of each tile is padding


def test_lengths_between_are_scaled_by_their_operations() -> None:
    """Catches a length with other radices at the price of its neighbour, and kinds without rows."""
    near, far = (bundles("v5e", "sublane", (n,)) for n in (512, 504))
    operations = 3 * OPERATIONS[2] + 2 * OPERATIONS[3] + OPERATIONS[7]
    assert far == pytest.approx(near * operations / (9 * OPERATIONS[2]))
    for kind, lengths in {"first": (2**15,), "long": (2**14,), "plane": (4096, 2048), "other": (1,)}.items():
        assert 0 < bundles("v3", kind, lengths) < math.inf
    assert cycles(CHIPS["v3"], "lane", (8190,), 100) > 0


@pytest.mark.parametrize("chip", TPUS, ids=lambda chip: chip.name)
def test_every_tpu_has_prices_of_words_above_memory(chip: Chip) -> None:
    """Catches a chip, a way, a width or a tile left out, and a price below what memory or bundles take."""
    assert chip.clock is not None
    for way in ("encode", "decode"):
        for bits in (kind.bits + 1 for kind in (Int16, Int24)):
            memory = (4 + bits / 8) * chip.clock.value / chip.memory.value
            for rows in (2, 4, 8):
                bundles = wire_table()[chip.name][f"{way}{bits}"][str(rows)]
                assert 10**6 * max(bundles, memory) <= wire_cycles(chip, way, bits, rows, 10**6) + 1
                assert wire_cycles(chip, way, bits, rows, 10**6) <= 1.01e6 * max(bundles, memory)


def test_kernels_of_words_are_priced_by_name_and_bytes() -> None:
    """Catches a kernel that costs nothing, and words counted as numbers or numbers as words."""
    text = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[64,64,4,128]) -> f32[64,64,4,128] {
  %x = f32[64,64,4,128] parameter(0)
  %w.1 = u32[64,1,33,4,128] custom-call(%x), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/step1_Pipeline/cond/branch_0_fun/wire_encode16_4/pallas_call"}
  ROOT %r.2 = f32[64,64,4,128] custom-call(%w.1), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/step1_Pipeline/cond/branch_0_fun/wire_decode16_4/pallas_call"}
}
"""  # noqa: E501
    chip, reals = CHIPS["v3"], 64 * 64 * 4 * 128
    both = [wire_cycles(chip, way, 16, 4, reals) for way in ("encode", "decode")]
    found = kernels(priced(parse(text), chip))
    assert found.times == 2 and sum(both) <= found.cycles <= 1.02 * sum(both)
    assert kernels(parse(text)) == KernelRuns(0, 0)
