"""Claims of docs/inside.md: the table of shard_map, the compilation cache, slices of modes."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import error

import meshfft as mf

SPEC = P("x", "y")
KEPT = """
import sys, jax, numpy as np
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event.rpartition("/")[2]))
import meshfft as mf
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",))
x = jax.device_put(np.ones((8, 6), np.float32), NamedSharding(mesh, P("x")))
mf.fftn(x), mf.poisson(x), mf.kdftn(x, [mf.Points.turns(np.arange(8) / 9.0), None])
mf.plan((8, 6), mesh=mesh, spec=P("x"), kind="rfft")(x), jax.jit(lambda x: mf.ifftn(mf.fftn(x) * 2))(x)
jax.config.update("jax_remove_custom_partitioning_ptr_from_cache_key", True)
auto = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
a = jax.device_put(np.ones((8, 6), np.float32), NamedSharding(auto, P("x")))
assert abs(jax.jit(jax.grad(lambda a: (abs(mf.fftn(a)) ** 2).sum()))(a) - 96).max() < 1e-3
assert abs(jax.jit(jax.grad(lambda a: (abs(mf.ifftn(a)) ** 2).sum()))(a) - 2 / 48).max() < 1e-6
jax.jit(lambda a: mf.multiply_spectrum(a, lambda i, j: 1 / (1 + i**2)))(a)
print(seen.count("cache_hits"), seen.count("cache_misses"))
"""


PAGE = Path(__file__).parent.parent / "docs" / "inside.md"
ROWS = re.findall(
    r"^\| `(mf\.[^`]*|plan\(b\))` \| `(.*)` \| (.*) \|$", PAGE.read_text().split("## Your own shard_map")[1], re.M
)
BLOCKS = (  # calls of the first row, which keep the sharding and give a block
    "mf.fftn(b, spec=spec)",
    "mf.irfftn(mf.rfftn(b, spec=spec), s=(16, 16, 16))",
    "mf.dctn(b, spec=spec)",
    "mf.kdftn(b, spec=spec)",
    "mf.ikdftn(b, spec=spec).value",
    "mf.fftshift(b, spec=spec)",
    "mf.derivative(b, 0, spec=spec)",
    "mf.poisson(b, spec=spec)",
    "mf.multiply_spectrum(b, lambda *k: 1 / (1 + k[0]**2), spec=spec)",
    "mf.convolve(b, b, spec=spec)",
    "mf.correlate(b, b, spec=spec)",
    'mf.pad_spectrum(mf.fftn(b, spec=spec), (32, 32, 32), kind="fft", spec=spec)',
    'mf.truncate_spectrum(mf.fftn(b, spec=spec), (8, 8, 8), kind="fft", spec=spec)',
)
ROWS += [(call, "spec", "block") for call in BLOCKS]
ERRORS = {"ValueError": ValueError, "NotImplementedError": NotImplementedError}


def test_the_table_has_its_rows() -> None:
    """Catches a row that the pattern does not see, which no test would run."""
    _, _, first, *others = PAGE.read_text().split("| `body(b)` |")[1].split("\n\n")[0].split("\n")
    assert len(ROWS) - len(BLOCKS) == len(others) > 8
    named = {name for name in re.findall(r"\w+", first) if name in mf.__all__}
    assert named == {re.findall(r"mf\.(\w+)", call)[0] for call in BLOCKS}


@pytest.mark.quick(1, 6)
@pytest.mark.parametrize(("call", "out", "result"), ROWS, ids=[row[0] for row in ROWS])
def test_every_row_of_the_table_of_shard_map(call: str, out: str, result: str) -> None:
    """Catches a row that raises, gives another kind of result or other numbers than outside, or has another error."""
    mesh, spec = jax.make_mesh((2, 2, 2), ("x", "y", "z")), P("x", "y", "z")
    host = np.random.default_rng(0).standard_normal((16, 16, 16)).astype(np.float32)
    plan = mf.plan(host.shape, mesh=mesh, spec=spec, dtype="float32", kind="rfft", order="any")
    names = {"mf": mf, "np": np, "P": P, "spec": spec, "plan": plan}
    body, there = eval(f"lambda b: {call}", names), eval(out, names)
    x = jax.device_put(host, NamedSharding(mesh, spec))
    run = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=there))
    kind, _, words = result.partition(": ")
    if kind in ERRORS:
        with pytest.raises(ERRORS[kind], match=words):
            run(x)
        return
    found, expected = run(x), body(x) if call == "plan(b)" else eval(f"lambda b: {call}", names | {"spec": None})(x)
    assert isinstance(found, mf.PaddedArray) == result.startswith("PaddedArray") or call == "plan(b)"
    assert isinstance(found, tuple) == result.startswith("PowerSpectrum")
    for one, other in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, expected)), strict=True):
        scale = np.abs(mf.gather(other)).max()
        np.testing.assert_allclose(mf.gather(one), mf.gather(other), atol=1e-6 * scale, rtol=2e-5)


@pytest.mark.slow
def test_compiled_programs_are_kept(tmp_path: Path) -> None:
    """Catches programs whose keys change from process to process, so that the persistent cache never has them."""
    command = [sys.executable, "-c", KEPT, str(tmp_path)]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in "ab")
    assert first[0] == "0" and int(first[1]) >= 5
    assert second == [first[1], "0"]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_slices_of_modes_along_cut_dimensions(kind: AxisType) -> None:
    """Catches a layer that keeps the lowest modes by .at[].set, and fails or is wrong where these are cut."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    host = np.random.default_rng(0).standard_normal((16, 16, 8)).astype(np.float32)
    x = jax.device_put(host, NamedSharding(mesh, SPEC))

    def sliced(v: jax.Array) -> jax.Array:
        spectrum = mf.fftn(v, spec=SPEC)
        return mf.ifftn(jnp.zeros_like(spectrum).at[:4, :4].set(spectrum[:4, :4]), spec=SPEC)

    if kind == AxisType.Explicit:
        sliced = jax.sharding.auto_axes(sliced, axes=("x", "y"), out_sharding=NamedSharding(mesh, SPEC))
    expected = np.fft.fftn(host)
    expected[4:], expected[:, 4:] = 0, 0
    with jax.set_mesh(mesh):
        found = jax.jit(sliced)(x)
    np.testing.assert_allclose(found, np.fft.ifftn(expected), atol=1e-5)


def test_constraints_of_auto_axes_and_reshards_of_explicit_ones() -> None:
    """Catches a transform inside jit that does not take an array as it was constrained or resharded there."""
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
        cut = NamedSharding(mesh, SPEC)
        lay = jax.lax.with_sharding_constraint if kind == AxisType.Auto else jax.reshard
        how = {"spec": SPEC} if kind == AxisType.Auto else {}
        with jax.set_mesh(mesh):
            y = jax.jit(lambda lay=lay, cut=cut, how=how: mf.fftn(lay(jnp.ones((16, 16, 8)), cut), **how))()
        assert y.sharding.is_equivalent_to(cut, 3)
        assert abs(np.asarray(y)[0, 0, 0] - 2048) < 1e-3


def test_nothing_is_on_the_mesh_of_auto_axes_yet() -> None:
    """Catches a call that JAX gives no mesh, as no argument that is used has one, and XLA then fails; and a trace with
    the devices of one mesh, used for another.
    """
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    host = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    expected, cut = np.fft.fftn(host), NamedSharding(mesh, SPEC)
    with jax.set_mesh(mesh):
        given = jax.jit(mf.fftn)(host)
        constrained = jax.jit(lambda s: mf.fftn(jax.lax.with_sharding_constraint(s * jnp.ones((16, 8)), SPEC)))(2.0)
        unused = jax.jit(jax.grad(lambda x: jnp.sum(mf.fftn(x) * expected.conj()).real))(jax.device_put(host, cut))
        again = mf.fftn(unused)
        both = P(None, ("y", "x"))  # XLA names no axes here: their order shows in the blocks
        turned = jax.jit(lambda: mf.fftn(jax.lax.with_sharding_constraint(jnp.asarray(host), both), out_spec=both))()
    assert error(turned, expected) < 1e-6 and turned.sharding.is_equivalent_to(NamedSharding(mesh, both), 2)
    reordered = Mesh(mesh.devices[::-1], ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    run = jax.jit(lambda x: mf.fftn(x))
    for one in (mesh, reordered):  # traces do not depend on devices
        with jax.set_mesh(one), jax.transfer_guard("disallow"):
            found = run(jax.device_put(host, NamedSharding(one, SPEC)))
        assert error(found, expected) < 1e-6
    assert error(given, expected) < 1e-6 and constrained.sharding.is_equivalent_to(cut, 2)
    assert abs(np.asarray(constrained)[0, 0] - 256) < 1e-4
    assert error(unused, 128 * host) < 1e-6 and error(again, 128 * expected) < 1e-6


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_block_by_itself(kind: AxisType) -> None:
    """Catches a plan for one device that takes a block inside shard_map for a cut array, and fails."""
    mesh = jax.make_mesh((4,), ("x",), axis_types=(kind,))
    host = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    x = jax.device_put(host, NamedSharding(mesh, P("x")))
    plan = mf.plan((2, 6))

    def alone(block: jax.Array) -> tuple[jax.Array, jax.Array]:
        return plan(block), mf.derivative(block, 1)

    found = jax.jit(jax.shard_map(alone, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x)
    k = 2j * np.pi * np.fft.fftfreq(6) * (np.arange(6) != 3)
    for y, truth in zip(found, (np.fft.fft2(host.reshape(4, 2, 6)), np.fft.ifft(k * np.fft.fft(host))), strict=True):
        np.testing.assert_allclose(y, truth.reshape(8, 6), atol=1e-5)
