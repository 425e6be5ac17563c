"""Records: a stored result's record restores its input, and a manipulated record is refused."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import MESHES

import meshfft as mf
from meshfft.io import Record, inverse_options, open_array, record_of, write_array
from meshfft.operators.transform import KINDS, NORMS, becomes


@st.composite
def transforms(draw: st.DrawFn) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The arguments of a plan of any kind, there or back, and the sizes of a mesh."""
    mesh = draw(st.sampled_from([sizes for sizes in MESHES if math.prod(sizes) <= 8 and len(sizes) <= 2]))
    ndim = draw(st.integers(len(mesh), 3))
    kind, inverse = draw(st.sampled_from(KINDS)), draw(st.booleans())
    axes = tuple(draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True)))
    least = 2 if kind == "dct-1" else 1
    shape = [draw(st.sampled_from((2, 3, 4, 5, 7, 8, 9))) for _ in range(ndim)]
    s = [draw(st.sampled_from((shape[a], *range(least, 10)))) for a in axes]
    if becomes(kind, inverse) == "real":  # the whole half spectrum of s[-1] points
        shape[axes[-1]] = s[-1] // 2 + 1
    norm, order = draw(st.sampled_from(NORMS)), draw(st.sampled_from(("natural", "any")))
    return {
        "shape": tuple(shape),
        "kind": kind,
        "inverse": inverse,
        "axes": axes,
        "s": tuple(s),
        "norm": norm,
        "order": order,
    }, mesh


def fitted(x: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    """The input as its transform sees it: cropped and padded to the lengths."""
    for axis, length in zip(options["axes"], options["s"], strict=True):
        if axis == options["axes"][-1] and becomes(options["kind"], options["inverse"]) == "real":
            length = length // 2 + 1
        keep = [slice(None)] * x.ndim
        keep[axis] = slice(length)
        widths = [(0, length - n if d == axis and n < length else 0) for d, n in enumerate(x.shape)]
        x = np.pad(x[tuple(keep)], widths)
    return x


def spectrum_of(options: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    """Numbers that the transform takes and loses nothing of: a half spectrum is that of real numbers."""
    real = becomes(options["kind"], options["inverse"]) == "complex" or options["kind"][:3] in ("dct", "dst")
    if becomes(options["kind"], options["inverse"]) == "real":
        lengths = list(options["shape"])
        lengths[options["axes"][-1]] = options["s"][-1]
        return np.fft.rfftn(rng.standard_normal(lengths), axes=options["axes"]).astype("complex64")
    x = rng.standard_normal(options["shape"], "float32")
    return x if real else (x + 1j * rng.standard_normal(options["shape"], "float32")).astype("complex64")


@given(case=transforms(), seed=st.integers(0, 2**32 - 1))
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, case: Any, seed: int) -> None:
    """Catches a kind, norm, length, axis or type that the record loses: written, read and undone by it, the input is
    there."""
    (options, sizes), rng = case, np.random.default_rng(seed)
    x, path = spectrum_of(options, rng), tmp_path_factory.mktemp("record") / "y.zarr"
    if (
        becomes(options["kind"], options["inverse"]) == "real"
    ):  # along further axes the inverse keeps only the spectrum of reals
        options["s"] = tuple(options["shape"][a] for a in options["axes"][:-1]) + options["s"][-1:]
    mesh = jax.make_mesh(sizes, ("x", "y")[: len(sizes)], devices=jax.devices()[: math.prod(sizes)])
    plan = mf.plan(**options, dtype=x.dtype, mesh=mesh)
    write_array(path, plan(mf.shard(x, mesh, plan.in_layout.spec)), record=record_of(plan))
    with open_array(path) as source:
        record = Record.from_dict(source.record, "y")
        assert record == record_of(plan) and record.mesh == dict(mesh.shape)
        back = mf.plan(**inverse_options(record), mesh=mesh)
        found = mf.gather(back(mf.shard(source, mesh, back.in_layout.spec)))
    np.testing.assert_allclose(found, fitted(x, options), atol=2e-5 * np.abs(x).max())


def made(**options: Any) -> Record:
    return record_of(mf.plan((6, 5), **options), ("mm", ""), (0.5, 1.0))


def test_what_a_record_says() -> None:
    """Catches a field that contradicts the plan, and one that does not survive JSON."""
    mesh = jax.make_mesh((2, 1), ("x", "y"), devices=jax.devices()[:2])
    record = made(mesh=mesh, kind="rfft", norm="ortho", axes=(1, 0), precision="bf16x3")
    assert (record.kind, record.inverse, record.norm, record.axes, record.lengths) == (
        "rfft",
        False,
        "ortho",
        (1, 0),
        (5, 6),
    )
    assert (record.shape, record.out_shape, record.dtype, record.out_dtype) == ((6, 5), (4, 5), "float32", "complex64")
    assert (record.mesh, record.in_spec, record.precision) == ({"x": 2, "y": 1}, (("x",), ("y",)), "bf16x3")
    assert (record.order, record.method, record.versions["numpy"]) == ("natural", "auto", np.__version__)
    assert set(record.versions) == {"meshfft", "jax", "jaxlib", "numpy"}
    assert Record.from_dict(json.loads(json.dumps(record.to_dict())), "a.zarr") == record


@pytest.mark.parametrize(
    ("kind", "period"), [("fft", 6), ("dct-1", 10), ("dct-2", 12), ("dst-1", 14), ("dst-3", 12), ("dct-4", 12)]
)
def test_units_turn_over_and_back(kind: str, period: int) -> None:
    """Catches a frequency named in millimetres, a spacing that is not 1 / (L dx), and units that are lost on the way
    back."""
    there = made(axes=(0,), kind=kind)
    assert there.units == ("1/mm", "") and there.spacing == pytest.approx((1 / (period * 0.5), 1.0))
    back = record_of(mf.plan(**inverse_options(there)), there.units, there.spacing)
    assert back.units == ("mm", "") and back.spacing == pytest.approx((0.5, 1.0))
    assert back.inverse or kind != "fft"  # a cosine transform is an inverse one as well
    speed = record_of(mf.plan((4,)), ("m/s",), (2.0,))
    assert speed.units == ("1/(m/s)",)
    assert record_of(mf.plan((4,)), speed.units, speed.spacing).units == ("m/s",)


def test_a_result_without_an_inverse_has_no_record() -> None:
    """Catches samples at any points passed off as a transform that can be undone by name."""
    with pytest.raises(ValueError, match="write it without"):
        record_of(mf.plan((8,), points=mf.Points.turns(np.array([0.1, 0.3, 0.5]))))
    with pytest.raises(ValueError, match="2 units and 1 spacings for 1 dimensions"):
        record_of(mf.plan((8,)), ("mm", "mm"))


@pytest.mark.parametrize("kind", ["dct-2", "dct-3", "dst-2", "dst-3", "dct-4"])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_a_forward_transform_is_no_inverse(kind: str, norm: str) -> None:
    """Catches a dct-3 recorded as the inverse of a dct-2, which it is too: `--inverse` of it was an inverse FFT."""
    record = made(kind=kind, norm=norm)
    assert (record.kind, record.inverse, record.norm) == (kind, False, norm)


@pytest.mark.parametrize("kind", ["rfft", "hfft"])
def test_odd_lines_come_back_odd(kind: str) -> None:
    """Catches a half spectrum taken for that of an even line."""
    inverse = kind == "hfft"  # from real to half a spectrum
    record = record_of(mf.plan((4, 7), kind=kind, inverse=inverse))
    assert record.out_shape == (4, 4) and mf.plan(**inverse_options(record)).out_shape == (4, 7)


HOSTILE: dict[str, list[Any]] = {
    "kind": ["fftt", 3, None, ["fft"]],
    "inverse": [1, "no", None],
    "axes": [[0, 0], [7], [-1], [0.5], [True], "01", [0] * 99, None, []],
    "norm": ["huge", None],
    "lengths": [[6], [0, 5], [6, -5], [2**70, 5], [6, 5, 5], [math.nan, 5], [7, 5]],
    "shape": [[6], [6, 0], [-6, 5], [10**30, 5], [6, 5, 1], "65"],
    "dtype": ["O", "float128", "|O8", 5],
    "out_shape": [[6, 6], [2**59, 2**59]],
    "out_dtype": ["object", None],
    "order": ["none", {}],
    "method": ["__class__", 1],
    "precision": ["float16", None],
    "mesh": [{"x": 0}, {"x": -2}, {"x": "2"}, {"x": 2**99}, {"x" * 999: 2}, [], {str(i): 1 for i in range(99)}],
    "in_spec": [[["q"], []], [[]], [["x"], ["x"]], [5, 5], [[["x"]], []]],
    "out_spec": [[["q"], []], "xy", None],
    "dimensions": [
        [],
        [{"name": "X", "unit": "mm", "spacing": spacing} for spacing in (math.nan, 1.0)],
        [{"name": "X", "unit": "mm", "spacing": spacing} for spacing in (0.0, 1.0)],
        [{"name": "X", "unit": "mm", "spacing": spacing} for spacing in (-1.0, 1.0)],
        [{"name": "X", "unit": "mm", "spacing": spacing} for spacing in (10**400, 1.0)],
        [{"name": "X\x1b[31m", "unit": "mm", "spacing": 1.0}] * 2,
        [{"name": "X" * 10**6, "unit": "mm", "spacing": 1.0}] * 2,
        [{"unit": "mm", "spacing": 1.0}] * 2,
        [["X", "mm", 1.0]] * 2,
    ],
    "versions": [{"jax": 1}, "0.1", None],
    "format": [2, None, "1", [[[[1]]]], True],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in HOSTILE.items() for value in values])
def test_tampered_records_are_refused(field: str, value: Any) -> None:
    """Catches an invalid record that is accepted, or a traceback, for a field of a wrong type or in contradiction to
    another."""
    mesh = jax.make_mesh((2,), ("x",), devices=jax.devices()[:2])
    plain = record_of(mf.plan((6, 5), mesh=mesh)).to_dict()
    Record.from_dict(copy.deepcopy(plain), "a.zarr")
    with pytest.raises(ValueError, match=r"^a\.zarr has a record .*: .*transform it again") as caught:
        Record.from_dict({**plain, field: value}, "a.zarr")
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize("field", ["axes", "shape", "in_spec", "dimensions", "mesh"])
def test_endless_lists_are_not_looked_at(field: str) -> None:
    """Catches work in proportion to a file's content before the record is found invalid."""
    plain: dict[str, Any] = record_of(mf.plan((6, 5))).to_dict()
    endless = {str(i): 1 for i in range(99)} if field == "mesh" else [(plain[field] or [[]])[0]] * 99
    with pytest.raises(ValueError, match=f"whose {field} is"):
        Record.from_dict({**plain, field: endless}, "a.zarr")


@pytest.mark.parametrize("value", [None, 3, "record", [], {"format": 1}])
def test_what_is_no_record_is_refused(value: Any) -> None:
    """Catches anything but an object taken for a record, and one without its fields."""
    with pytest.raises(ValueError, match=r"^a\.zarr has a record "):
        Record.from_dict(value, "a.zarr")


def test_a_record_of_another_array_is_refused(tmp_path: Path) -> None:
    """Catches a record copied to an array that it does not describe, on writing and on reading."""
    x = jax.numpy.ones((4,), "complex64")
    record = record_of(mf.plan((4,)))
    with pytest.raises(ValueError, match="give the record of its plan"):
        write_array(tmp_path / "a.zarr", jax.numpy.ones((3,), "complex64"), record=record)
    write_array(tmp_path / "a.zarr", x, record=record)
    store = tmp_path / "a.zarr"
    path = store / "data" / "zarr.json"
    path.write_text(path.read_text().replace('"data_type":"complex64"', '"data_type":"complex128"'))
    with pytest.raises(ValueError, match=r"record of complex64 \(4,\) and holds complex128"), open_array(store):
        pass


def test_other_zarr_readers_see_it(tmp_path: Path) -> None:
    """Catches attributes or dimension names that only this library finds."""
    zarr = pytest.importorskip("zarr")
    write_array(tmp_path / "a.zarr", jax.numpy.ones((6, 5), "complex64"), record=made())
    array = zarr.open_array(tmp_path / "a.zarr" / "data", mode="r")
    assert array.metadata.dimension_names == ("X", "Y")
    assert array.attrs["meshfft"]["dimensions"][0] == {"name": "X", "unit": "1/mm", "spacing": 1 / 3}
