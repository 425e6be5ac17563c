"""Wires: every number arrives within the stated bound, in the stated number of bytes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P
from reference import mesh, noise

import meshfft as mf
from meshfft.collectives.all_to_all import exchange_packed
from meshfft.collectives.ring import handed_on
from meshfft.collectives.wires import EXACT, RUN, WIRES, Wire, carried, form_of, wire_of
from meshfft.collectives.words import WORD
from meshfft.inspect.hlo import every_collective, program_of
from meshfft.steps.sends import Wired

LOSSY = [name for name in WIRES if name != "exact"]
SHAPES = ((1,), (3,), (97,), (129,), (5, 7), (64, 3), (2, 3, 33), (3, 0, 2))


def _carried(x: Any, wire: Wire) -> Any:
    return jax.tree.map(np.asarray, _passage(jax.tree.map(jnp.asarray, x), wire))


@functools.partial(jax.jit, static_argnums=1)
def _passage(x: Any, wire: Wire) -> Any:
    return carried(lambda words: words, x, wire)


def _spread(shape: tuple[int, ...], low: float, high: float, kind: np.dtype, seed: int) -> np.ndarray:
    """Numbers of both signs, their magnitudes over decades, a third of them zeros."""
    rng = np.random.default_rng(seed)
    values = rng.choice([-1.0, 1.0, 0.0], shape) * 10 ** rng.uniform(low, high, shape)
    return values.astype(kind)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", LOSSY)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from([(-30.0, 38.0), (36.0, 38.5), (-28.0, -25.0), (-1.0, 1.0), (-6.0, 0.0)]),
    st.integers(0, 2**20),
    st.sampled_from(["real", "complex", "planes"]),
    st.booleans(),
)
@example((129,), (38.53, 38.5317), 0, "complex", False)
@example((64, 3, 5), (-1.0, 1.0), 0, "planes", True)
def test_errors_stay_under_the_bound(
    name: str, shape: tuple[int, ...], decades: tuple[float, float], seed: int, form: str, flat: bool
) -> None:
    """Catches a scale of the wrong run, one that overflows or is lost, a sign, clamping too early, planes mixed up and
    padding left in: for every run, and so for every array, whatever its magnitudes.
    """
    wire = wire_of(name, np.dtype("f4"), flat)
    re, im = (_spread(shape, *decades, np.dtype("f4"), seed + j) for j in (0, 1))
    x: Any = {"real": re, "complex": re + np.complex64(1j) * im, "planes": (re, im)}[form]
    found = _carried(x, wire)
    given, came = (np.stack(jax.tree.leaves(one)).astype(complex) for one in (x, found))
    assert jax.tree.map(lambda a: (a.shape, a.dtype), x) == jax.tree.map(lambda a: (a.shape, a.dtype), found)
    assert np.linalg.norm(came - given) <= wire.error * np.linalg.norm(given)


@pytest.mark.parametrize("name", LOSSY)
def test_the_bound_is_reached_but_for_little(name: str) -> None:
    """Catches a bound that is far too loose: one large number, and the rest off by nearly half a step."""
    wire = WIRES[name]()
    x = np.full(RUN, 0.49 * 2.0 ** (1 - (15 if name == "int16" else 23)), np.float32)
    x[0] = 1 if name != "bfloat16" else 1 + 2.0**-8 - 2.0**-20
    x[1:] *= name != "bfloat16"
    off = np.linalg.norm(_carried(x, wire) - x) / np.linalg.norm(x)
    assert 0.4 * wire.error <= off <= wire.error


@pytest.mark.parametrize("name", ["int16", "int24"])
@pytest.mark.parametrize("low", [-300.0, -10.0, 290.0])
def test_float64_travels_in_as_few_bytes(name: str, low: float, x64: None) -> None:
    """Catches scales without the range of float64."""
    wire = wire_of(name, np.dtype("f8"))
    x = _spread((3, 70), low, low + 15, np.dtype("f8"), 1) + 1j * _spread((3, 70), low, low + 15, np.dtype("f8"), 2)
    assert np.linalg.norm((_carried(x, wire) - x) / 10**low) <= wire.error * np.linalg.norm(x / 10**low)
    assert wire.nbytes(x.shape, 16) == WIRES[name]().nbytes(x.shape, 8)


@pytest.mark.parametrize("name", LOSSY)
def test_zeros_infinities_nan_and_denormals(name: str) -> None:
    """Catches infinities and NaN that become numbers, or spoil those beside them; zeros that ask for room, and
    denormals that are anything but zero, or numbers that they make less exact.
    """
    x = np.zeros(128, np.float32)
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, -1e-45, 0.75, -0.5, 1e-3]
    x[: len(special)] = special
    found = _carried(x, WIRES[name]())
    np.testing.assert_array_equal(found[:5], [np.inf, -np.inf, np.nan, 0.0, 0.0])
    np.testing.assert_array_equal(found[5:7], 0)
    np.testing.assert_array_equal(found[7:9], [0.75, -0.5])
    assert abs(found[9] - 1e-3) <= {"int16": 2.0**-16, "int24": 2.0**-24, "bfloat16": 4e-6}[name]
    assert not found[10:].any()
    alone = np.zeros(128, np.complex64)
    alone[[3, 100]] = [3e-38, 1e38j]
    if name != "bfloat16":
        assert np.linalg.norm((_carried(alone, WIRES[name]()) - alone)[:64]) <= 2.0**-14 * 3e-38, "runs have own scales"


def test_tiny_runs_are_rounded_to_the_least_normal_number() -> None:
    """Catches a scale lost at the limit of the type: near 2^-126 only denormals may be lost."""
    x = np.array([1.2e-38, 3e-38, 5e-37, -7e-36] * 16, np.float32)
    for name in LOSSY:
        off = np.abs(_carried(x, WIRES[name]()) - x)
        assert off.max() <= max(2.0**-126 if name != "bfloat16" else 0, 2.0**-8 * 7e-36), name


@pytest.mark.parametrize(("name", "part"), [("int16", 0.5), ("int24", 0.75), ("bfloat16", 0.5)])
@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("flat", [False, True])
def test_bytes_are_half_or_three_quarters_and_the_scales(name: str, part: float, itemsize: int, flat: bool) -> None:
    """Catches words that hold less than they could, and more scales than one of two bytes for a run."""
    wire = WIRES[name](flat=flat)
    for shape in ((64, 64, 64), (256, 8, 16), (2**20,)):
        count = int(np.prod(shape)) * itemsize
        scales = 0 if name == "bfloat16" else count / (RUN // 4 * WORD)
        assert part * count <= wire.nbytes(shape, itemsize) <= part * count + 1.01 * scales + 0.026 * count
    assert wire.nbytes((2**20,), 8) <= (part + 0.008) * 2**23
    assert EXACT.nbytes((3, 5), 8) == 120


@pytest.mark.quick(0, 1, 3, 4, 7)
@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("planes", [False, True])
def test_one_collective_carries_planes_and_scales(name: str, planes: bool) -> None:
    """Catches scales or planes in separate messages, a wrong number of bytes, and shares that are sent or joined
    differently from exact ones.
    """
    x, where, wire = noise((16, 24, 40)), mesh((8,)), WIRES[name]()
    block: Any = (x.real.copy(), x.imag.copy()) if planes else x

    def both(block: Any) -> Any:
        moved = exchange_packed(block, ("x",), 1, 2, wire)
        hop = carried(lambda words: handed_on(words, ("x",), 1), block, wire)
        return moved, hop

    over = jax.jit(jax.shard_map(both, mesh=where, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    program = over.lower(block).compile()
    sent = every_collective(program_of(program))
    arrays = 2 if planes and not wire.lossy else 1
    assert [one.kind for one in sent].count("all-to-all") == arrays
    assert [one.kind for one in sent].count("collective-permute") == arrays
    share, itemsize = (2, 3, 40), 8
    sizes = {"all-to-all": 8 * wire.nbytes(share, itemsize), "collective-permute": wire.nbytes((2, 24, 40), itemsize)}
    for kind, nbytes in sizes.items():
        assert sum(one.bytes for one in sent if one.kind == kind) == nbytes
    arrived = jax.tree.map(np.asarray, over(block))
    moved, hop = (one[0] + 1j * one[1] if planes else one for one in arrived)
    shares = x.reshape(8, 2, 8, 3, 40)  # sender, row, receiver, column, lane
    expected = shares.transpose(2, 1, 3, 0, 4).reshape(16, 3, 320)
    for found, true in ((moved, expected), (hop, np.roll(x, 2, 0))):
        assert np.linalg.norm(found - true) <= wire.error * np.linalg.norm(true)


@pytest.mark.parametrize("wire", ["int16", "int24", {"outer": "int16"}])
def test_no_wire_encodes_a_tpu_s_float64(wire: Any, x64: None) -> None:
    """Catches plans that its compiler does not take: float64 is two floats there, and bits of one mean nothing."""
    call = functools.partial(mf.plan, (64, 64), mesh=AbstractMesh((4,), ("x",)), topology="v5e:2x2", dtype="complex128")
    with pytest.raises(ValueError, match=r"v5e devices keep float64 in two floats.*use wire='exact'"):
        call(wire=wire)
    assert call(wire="exact").fits and call(wire=wire, precision="float32").fits


def test_wires_are_refused_by_name() -> None:
    """Catches a misspelt wire, or one whose range is too small for the type."""
    with pytest.raises(ValueError, match="wire 'int8' is unknown: use one of 'exact', 'int24', 'int16', 'bfloat16'"):
        wire_of("int8", np.dtype("f4"))
    with pytest.raises(ValueError, match="lacks the range of float64"):
        wire_of("bfloat16", np.dtype("f8"))
    misspelt: Any = {"iner": "int16", "outr": "int16"}  # equal wires, but no level has these names
    with pytest.raises(ValueError, match="has a level 'iner': use inner for messages inside"):
        mf.plan((8, 8), wire=misspelt)


def test_words_for_tpus_fill_tiles() -> None:
    """Catches words of short lines, each of which TPUs store as 128."""
    flat, plain = (form_of((64, 32, 16), 2, WIRES["int16"](flat=flat)) for flat in (True, False))
    assert flat.message == (65, 512) and plain.message[-1] == 16
    assert form_of((64, 3, 5), 2, WIRES["int24"](flat=True)).message[-1] == 15, "drawn sizes are flat, too"
    for shape in ((2**16,), (64, 32, 128)):
        assert form_of(shape, 2, WIRES["int16"](flat=True)).message[-1] >= 128
    of, spec = AbstractMesh((4,), ("x",)), P(None, None, "x")
    described = mf.plan((64, 128, 62), mesh=of, spec=spec, topology="v5e:2x2", wire="int16")
    wires = [step.wire for step in described.walk.steps if isinstance(step, Wired)]
    assert wires and all(wire.flat for wire in wires)
