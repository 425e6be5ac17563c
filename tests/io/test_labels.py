"""Stores of xarray and files of NetCDF-4: names, coordinates, units and attributes survive; xarray opens it."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_files import refusal
from typer.testing import CliRunner

import meshfft as mf
from meshfft.cli.app import app
from meshfft.io import Record, inverse_options, labelled, open_array, record_of
from meshfft.io.labels import coordinate_of, step_of
from meshfft.io.source import Coordinate, Labels

xr = pytest.importorskip("xarray")
pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),  # zarr's own consolidated metadata
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),  # zarr's own strings
]
SHAPE = (4, 6, 8)
VALUES = np.random.default_rng(0).normal(size=SHAPE).astype("f4")


def field() -> Any:
    """A variable with coordinates of every kind, in a dataset."""
    coords: dict[str, Any] = {
        "time": ("time", np.array("2000-01-01", "M8[ns]") + np.arange(4) * np.timedelta64(6, "h")),
        "y": ("y", 10 - 0.5 * np.arange(6), {"units": "m", "long_name": "northing"}),
        "x": ("x", 3 + 0.25 * np.arange(8), {"units": "km"}),
        "lat": (("y", "x"), np.arange(48.0).reshape(6, 8)),
        "station": ("time", list("abcd")),
        "level": 3.0,
    }
    values = (("time", "y", "x"), VALUES, {"units": "K", "long_name": "temperature"})
    return xr.Dataset({"t": values}, coords=coords, attrs={"title": "a field"})


def written(path: Path, dataset: Any) -> Path:
    """A store of format 2 or 3, or a file of NetCDF-4, by the name of the path."""
    if path.suffix == ".nc":
        dataset.to_netcdf(path)
    else:
        dataset.to_zarr(path, zarr_format=2 if "2" in path.name else 3)
    return path


def opened(path: Path) -> Any:
    """The dataset that xarray reads from a store or a file, with complex numbers."""
    if path.suffix == ".zarr":
        return xr.open_zarr(path)
    return xr.open_dataset(path, engine="netcdf4", auto_complex=True)


def transform(*words: Any) -> str:
    found = CliRunner().invoke(app, ["transform", *map(str, words)])
    assert found.exit_code == 0, found.output
    return found.stdout


def refused(*words: Any) -> str:
    found = CliRunner().invoke(app, ["transform", *map(str, words)])
    assert found.exit_code == 2, found.output
    return found.stderr


BOTH = [("a2.zarr", ".zarr"), ("a3.zarr", ".zarr"), ("a.nc", ".zarr"), ("a3.zarr", ".nc"), ("a.nc", ".h5")]


@pytest.mark.quick(0)
@pytest.mark.parametrize(("name", "kind"), BOTH)
def test_what_xarray_wrote_xarray_reads_again(tmp_path: Path, name: str, kind: str) -> None:
    """Catches an output that xarray does not open, a dimension without its name, positions left on frequencies,
    frequencies in the wrong order or unit, and coordinates of other dimensions lost."""
    source = written(tmp_path / name, field())
    transform(source, tmp_path / f"b{kind}", "--axes", "1,2", "--mesh", "2")
    with opened(tmp_path / f"b{kind}") as found:
        assert (list(found.data_vars), found.t.dims, found.attrs["title"]) == (["t"], ("time", "y", "x"), "a field")
        np.testing.assert_allclose(found.t, np.fft.fftn(VALUES, axes=(1, 2)), atol=1e-4)
        np.testing.assert_array_equal(found.time, field().time)
        np.testing.assert_allclose(found.y, np.fft.fftfreq(6, -0.5))
        np.testing.assert_allclose(found.x, np.fft.fftfreq(8, 0.25))
        assert (found.y.attrs["units"], found.x.attrs["units"], found.x.attrs["long_name"]) == (
            "1/m",
            "1/km",
            "frequency along x",
        )
        assert (found.t.attrs["long_name"], "lat" in found.coords) == ("temperature", False)
        if (name, kind) == ("a3.zarr", ".zarr"):
            assert list(found.station.values) == list("abcd") and found.level == 3.0
    transform(tmp_path / f"b{kind}", tmp_path / f"c{kind}", "--inverse")
    with opened(tmp_path / f"c{kind}") as back:
        np.testing.assert_allclose(back.t.values.real, VALUES, atol=1e-5)
        for dim in ("y", "x"):
            np.testing.assert_allclose(back[dim], field()[dim])
            assert back[dim].attrs == field()[dim].attrs
        np.testing.assert_array_equal(back.time, field().time)


def test_times_become_frequencies_and_times_again(tmp_path: Path) -> None:
    """Catches 'hours since' a day as the unit of a frequency, half a spectrum with the frequencies of a whole one, and
    times that become numbers."""
    source = written(tmp_path / "a3.zarr", field())
    transform(source, tmp_path / "b.zarr", "--axes", "0", "--kind", "rfft", "--mesh", "1")
    with xr.open_zarr(tmp_path / "b.zarr") as found:
        np.testing.assert_allclose(found.time, np.fft.rfftfreq(4, 6))
        assert found.time.attrs["units"] == "1/hours" and "station" not in found.coords
        np.testing.assert_array_equal(found.lat, field().lat)
    transform(tmp_path / "b.zarr", tmp_path / "c.zarr", "--inverse")
    with xr.open_zarr(tmp_path / "c.zarr") as back:
        np.testing.assert_array_equal(back.time, field().time)


POSITIONS = [np.arange(31) * 6.0, 0.1 * np.arange(49), 5 + 0.3 * np.arange(10), np.linspace(0, 1, 49)]


@pytest.mark.parametrize("x", POSITIONS, ids=["hours", "tenths", "shifted", "linspace"])
def test_positions_come_back_to_the_last_bit(tmp_path: Path, x: np.ndarray) -> None:
    """Catches spacings from 1 / (N df): xarray joins by equal positions, and found 1 of 31 in common."""
    source = written(tmp_path / "a3.zarr", xr.Dataset({"v": ("x", np.cos(x).astype("f4"))}, coords={"x": x}))
    transform(source, tmp_path / "b.zarr", "--mesh", "1")
    transform(tmp_path / "b.zarr", tmp_path / "c.zarr", "--inverse")
    with xr.open_zarr(tmp_path / "c.zarr") as back:
        np.testing.assert_array_equal(back.x, x)


@pytest.mark.quick(0)
@pytest.mark.parametrize("target", ["b.zarr", "c.zarr", "c.nc"])
def test_passes_write_the_same_dataset(tmp_path: Path, target: str) -> None:
    """Catches coordinates that only an array in memory gets."""
    values = np.random.default_rng(1).normal(size=(64, 64, 32)).astype("f4")
    dataset = xr.Dataset({"t": (("z", "y", "x"), values)}, coords={"x": ("x", np.arange(32) * 2.0, {"units": "s"})})
    source = written(tmp_path / "a3.zarr", dataset)
    transform(source, tmp_path / target, "--mesh", "1", *(["--memory", "1MB"] if target[0] == "c" else []))
    with opened(tmp_path / target) as found:
        np.testing.assert_allclose(found.t, np.fft.fftn(values), atol=3e-3)
        np.testing.assert_allclose(found.x, np.fft.fftfreq(32, 2.0))
        assert found.x.attrs["units"] == "1/s" and set(found.coords) == {"x"}


def test_positions_without_a_regular_spacing(tmp_path: Path) -> None:
    """Catches positions kept on a dimension of frequencies, and a spacing made up for them."""
    dataset = xr.Dataset({"t": (("y", "x"), VALUES[0])}, coords={"x": ("x", np.arange(8.0) ** 2, {"units": "m"})})
    said = transform(written(tmp_path / "a3.zarr", dataset), tmp_path / "b.zarr", "--mesh", "1")
    with xr.open_zarr(tmp_path / "b.zarr") as found:
        assert found.t.dims == ("y", "x") and not found.coords
    assert "It leaves out coordinates without a regular spacing: x." in said
    with open_array(tmp_path / "a3.zarr") as source:
        assert (source.units, source.spacing) == (("", ""), (1.0, 1.0))


def test_names_of_an_array_alone(tmp_path: Path) -> None:
    """Catches the names of the dimensions of an array outside a group lost."""
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "a.zarr", data=VALUES[0], dimension_names=("lat", "lon"), attributes={"units": "K"})
    transform(tmp_path / "a.zarr", tmp_path / "b.zarr", "--mesh", "1")
    found = zarr.open_array(tmp_path / "b.zarr" / "data", mode="r")
    assert found.metadata.dimension_names == ("lat", "lon") and found.attrs["units"] == "K"


def test_several_variables_have_to_be_named(tmp_path: Path) -> None:
    """Catches a coordinate read as data, and a refusal without the way to name one in Python or in a shell."""
    for name in ("a3.zarr", "a2.zarr", "a.nc"):
        path = written(tmp_path / name, field().assign(u=field().t + 1))
        line = refusal(path)
        assert "has 2 datasets (t, u): name one of them, as dataset=t" in line and "--" not in line
        assert "name one of them, as --dataset t" in refused(path, tmp_path / "b.zarr", "--mesh", "1")
        with open_array(path, "u") as source:
            np.testing.assert_array_equal(source[...], VALUES + 1)
        for typo, near in (("v", "t"), ("uu", "u")):
            line = refused(path, tmp_path / "b.zarr", "--mesh", "1", "--dataset", typo)
            assert f"has no dataset '{typo}', it has t, u: name one of them, as --dataset {near}" in line


@pytest.mark.parametrize("name", ["a2.zarr", "a3.zarr", "a.nc"])
def test_packed_numbers_are_unpacked(tmp_path: Path, name: str) -> None:
    """Catches the integers that stand for numbers transformed in their place, and missing ones taken for numbers."""
    packed = {"t": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 2.0, "_FillValue": -9999}}
    for folder, values in (("whole", VALUES[0]), ("holes", np.where(VALUES[0] > 1, np.nan, VALUES[0]))):
        dataset, path = xr.Dataset({"t": (("y", "x"), values)}), tmp_path / folder / name
        path.parent.mkdir()
        if name == "a.nc":
            dataset.to_netcdf(path, encoding=packed)
        else:
            dataset.to_zarr(path, zarr_format=int(name[1]), encoding=packed)
    with open_array(tmp_path / "whole" / name) as source:
        assert source.dtype == np.float64
        np.testing.assert_allclose(source[...], VALUES[0], atol=0.0051)
    assert "has missing values (-9999)" in refusal(tmp_path / "holes" / name)


@pytest.mark.parametrize("name", ["a2.zarr", "a3.zarr", "a.nc"])
def test_nan_marks_missing_values(tmp_path: Path, name: str) -> None:
    """Catches a spectrum of NaN alone: NaN is xarray's own mark, and no number equals it."""
    path = written(tmp_path / name, xr.Dataset({"t": (("time", "y", "x"), np.where(VALUES > 1, np.nan, VALUES))}))
    assert "has missing values (nan)" in refusal(path)
    whole = written(tmp_path / f"whole-{name}", xr.Dataset({"t": (("time", "y", "x"), VALUES)}))
    with open_array(whole) as source:
        np.testing.assert_array_equal(source[...], VALUES)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "i4", "u4", "i8", "u8"])
def test_numbers_that_netcdf_never_wrote_are_missing(tmp_path: Path, dtype: str) -> None:
    """Catches NetCDF's default marks transformed as numbers, 1e37 among them: no attribute names them."""
    netcdf = pytest.importorskip("netCDF4")
    for name, rows in (("holes.nc", 6), ("whole.nc", 8)):
        with netcdf.Dataset(tmp_path / name, "w") as file:
            for dim, size in (("y", 8), ("x", 4)):
                file.createDimension(dim, size)
            file.createVariable("t", dtype, ("y", "x"))[:rows] = 1
    assert "has missing values (" in refusal(tmp_path / "holes.nc")
    with open_array(tmp_path / "whole.nc") as source:
        assert source.dtype == dtype and (source[...] == 1).all()


@pytest.mark.parametrize("name", ["a2.zarr", "a3.zarr"])
def test_an_array_may_mark_missing_values_in_several_ways(tmp_path: Path, name: str) -> None:
    """Catches numbers that stand for missing ones transformed since another number does so too."""
    holes = np.where(VALUES > 2, np.float32(-888), VALUES)
    path = written(tmp_path / name, xr.Dataset({"t": (("time", "y", "x"), holes)}))
    told = path / "t" / ("zarr.json" if name == "a3.zarr" else ".zattrs")
    document = json.loads(told.read_text())
    attributes = document["attributes"] if name == "a3.zarr" else document
    for marks in ({"_FillValue": -999.0, "missing_value": -888.0}, {"missing_value": [-777.0, -888.0]}):
        attributes.pop("_FillValue", None)
        attributes.update(marks)
        told.write_text(json.dumps(document))
        assert "has missing values (" in refusal(path, "t")


@pytest.mark.parametrize("name", ["a2.zarr", "a3.zarr", "a.nc"])
def test_integers_may_be_meant_unsigned(tmp_path: Path, name: str) -> None:
    """Catches integers above 127 transformed as negative ones, where xarray reads them as they are meant."""
    stored = np.arange(192, dtype="i1").reshape(SHAPE)
    variable = xr.Variable(("time", "y", "x"), stored, {"_Unsigned": "true"})
    path = written(tmp_path / name, xr.Dataset({"t": variable}))
    with open_array(path, "t") as source:
        assert source.dtype == np.uint8
        np.testing.assert_array_equal(source[...], stored.view("u1"))


@pytest.mark.parametrize("scale", ["0.5", [0.5, 2.0]])
def test_a_scale_that_is_no_number_is_refused(tmp_path: Path, scale: Any) -> None:
    """Catches integers transformed unscaled since nobody understood their scale; one in a list is understood."""
    path = written(tmp_path / "a3.zarr", xr.Dataset({"t": (("time", "y", "x"), VALUES)}))
    document = json.loads((path / "t" / "zarr.json").read_text())
    document["attributes"] = {"scale_factor": scale}
    (path / "t" / "zarr.json").write_text(json.dumps(document))
    assert "its scale_factor is" in refusal(path, "t")
    document["attributes"] = {"scale_factor": [0.5]}
    (path / "t" / "zarr.json").write_text(json.dumps(document))
    with open_array(path, "t") as source:
        np.testing.assert_allclose(source[...], VALUES / 2)


def test_netcdf_of_before_hdf5(tmp_path: Path) -> None:
    """Catches an old file called damaged, when it is only of another format."""
    (tmp_path / "a.nc").write_bytes(b"CDF\x01" + bytes(100))
    assert "nccopy -k nc4" in refusal(tmp_path / "a.nc")


def test_hostile_labels(tmp_path: Path) -> None:
    """Catches a coordinate read from outside the store, invalid names, attributes that no reader takes, and a pipe or
    link among the files of a coordinate followed when the output is written."""
    path = written(tmp_path / "a3.zarr", field())
    document = json.loads((path / "t" / "zarr.json").read_text())
    names: Any
    for names in (["x", "x", "x"], [1, 2, 3], "tyx", ["a", "b"]):
        (path / "t" / "zarr.json").write_text(json.dumps({**document, "dimension_names": names}))
        refusal(path, "t")
    for names in (["x" * 999, "y", "x"], ["\x1b[31m", "y", "x"], [None, "y", "x"]):
        (path / "t" / "zarr.json").write_text(json.dumps({**document, "dimension_names": names}))
        with open_array(path, "t") as source:
            assert source.labels is None and source[0, 0, 0] == VALUES[0, 0, 0]
    attributes = {"coordinates": "../../b ../t t . /etc station", "big": "x" * 10**5, "units": "K"}
    (path / "t" / "zarr.json").write_text(json.dumps({**document, "attributes": attributes}))
    with open_array(path, "t") as source:
        assert source.labels is not None
        assert {one.name for one in source.labels.coordinates} == {"time", "y", "x", "station"}
        assert source.labels.attributes["units"] == "K" and "big" not in source.labels.attributes
    os.mkfifo(path / "station" / "pipe")  # of text, which is copied unread
    assert "pipe is a link or no file" in refusal(path, "t")


def coordinates(record: Record) -> Any:
    assert record.labels is not None
    return record.labels.coordinates


@pytest.mark.parametrize(
    ("kind", "first"),
    [("dct-1", 0), ("dct-2", 0), ("dct-3", 0.5), ("dct-4", 0.5), ("dst-1", 1), ("dst-2", 1), ("dst-3", 0.5)],
)
def test_frequencies_of_cosines_and_sines(kind: str, first: float) -> None:
    """Catches the frequencies of another kind, which begin half a step or a step later, and positions that are lost."""
    positions = 5 + 0.5 * np.arange(6)
    x = Coordinate("x", ("x",), {"units": "m"}, positions)
    there = labelled(record_of(mf.plan((6,), kind=kind), ("m",), (0.5,)), Labels("t", ("x",), {}, (x,)))
    (found,) = coordinates(there)
    period = {"dct-1": 10, "dst-1": 14}.get(kind, 12)
    np.testing.assert_allclose(found.values, (first + np.arange(6)) / (period * 0.5))
    back = record_of(mf.plan(**inverse_options(there)), there.units, there.spacing)
    (again,) = coordinates(labelled(back, there.labels))
    np.testing.assert_allclose(again.values, positions)
    assert again.attributes == {"units": "m"}


def test_what_coordinates_stand_for() -> None:
    """Catches packed positions kept as they are stored, and a mark of missing ones taken for a position."""
    packed = {"scale_factor": 0.5, "add_offset": 1.0, "_FillValue": 7, "units": "m"}
    found = coordinate_of("x", ("x",), packed, np.array([2, 7, 4], "i2"))
    np.testing.assert_array_equal(found.values, [2, np.nan, 3])
    assert found.attributes == {"units": "m"}
    whole = coordinate_of("x", ("x",), {"_Unsigned": "true"}, np.array([-1, 1], "i1"))
    assert whole.values is not None and whole.values.tolist() == [255, 1] and whole.values.dtype == np.uint8


def test_steps() -> None:
    """Catches a spacing of irregular positions, and a missing one for positions rounded to float32 or in frequency
    order."""

    def step(values: Any) -> float | None:
        return step_of(Coordinate("x", ("x",), {}, np.asarray(values)))

    assert step(np.arange(9, dtype="f4") * np.float32(0.1) + 100) == pytest.approx(0.1, rel=1e-4)
    assert (step([3, 2, 1]), step(np.fft.fftfreq(8, 0.5))) == (-1, 0.25)
    for none in ([1.0], [1, 2, 4], [2, 2, 2], [0, np.nan, 2], [1, np.inf], ["a", "b"]):
        assert step(none) is None
