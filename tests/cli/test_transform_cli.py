"""`meshfft transform`: values, types and files, and the record that the inverse reads from a file."""

import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from commands import SIZES, call, forbid, python, refused, values
from reference import error

from meshfft.cli import output
from meshfft.cli.transform import run_stages
from meshfft.io import open_array

pytestmark = pytest.mark.usefixtures("terminal")
README = Path(__file__).parents[2] / "README.md"


@pytest.mark.quick(1, 2)
@pytest.mark.parametrize(
    ("flags", "numpy_options"),
    [
        (["--mesh", "2,2,2"], {}),
        (["--mesh", "4,2", "--spec", "-,x+y", "--axes", "-1,0", "--norm", "ortho"], {"axes": (-1, 0), "norm": "ortho"}),
        (["--mesh", "8", "--order", "any", "--method", "transpose"], {}),
        (["--mesh", "2,2", "--spec", ",y,x", "--method", "kdft", "--norm", "forward"], {"norm": "forward"}),
    ],
)
def test_transform_agrees_with_numpy(flags: list[str], numpy_options: dict[str, Any]) -> None:
    """Catches a flag that does not reach the plan, padding in the output, and a layout written wrongly."""
    np.save("a.npy", values())
    call("transform", "a.npy", "b.npy", *flags)
    result = np.load("b.npy")
    assert result.dtype == np.complex64
    assert error(result, np.fft.fftn(values().astype(complex), **numpy_options)) < 4e-7


def test_wires_send_less_and_say_what_that_costs() -> None:
    """Catches --wire that does not reach the plan, and one that passes over the disk would not heed."""
    np.save("a.npy", values())
    call("transform", "a.npy", "b.npy", "--mesh", "2,2,2", "--wire", "int16")
    exact, lossy = (
        json.loads(call("plan", "128,128,128", "--mesh", "8", "--wire", wire, "--json")) for wire in ("exact", "int16")
    )
    assert 4e-7 < error(np.load("b.npy"), np.fft.fftn(values().astype(complex))) <= lossy["error_expected"]
    assert lossy["wire"] == "int16" and 0.5 <= lossy["bytes_per_device"] / exact["bytes_per_device"] <= 0.54
    outer = ["plan", "64,64,64", "--mesh", "2,4", "--topology", "2*cpu:4", "--wire", "outer=int16", "--json"]
    assert json.loads(call(*outer))["wire"] == "outer=int16"
    for name, value in (("wire", "int16"), ("ring", "one-way")):
        words = ["transform", "a.npy", "c.npy", "--mesh", "2", "--memory", "1GB", f"--{name}", value]
        assert f"leave out --{name}" in refused(*words)


@pytest.mark.more
def test_the_direction_of_the_ring_is_that_of_the_flag() -> None:
    """Catches --ring that does not reach the plan that runs."""
    np.save("a.npy", values())
    for ring in ("one-way", "two-way"):
        words = ["--mesh", "4", "--method", "kdft", "--ring", ring, "--overwrite"]
        assert f"ring X (dense, {ring})" in call("transform", "a.npy", "b.npy", *words)
    assert error(np.load("b.npy"), np.fft.fftn(values().astype(complex))) < 4e-7


@pytest.mark.quick(1)
@pytest.mark.parametrize("middle", ["b.npy", "b.zarr", "b.h5"])
def test_back_and_forth_is_the_identity(middle: str) -> None:
    """Catches an inverse of another scale or sign, and files that are not read as they were written."""
    np.save("a.npy", values())
    call("transform", "a.npy", middle, "--mesh", "2,2,2", "--norm", "ortho")
    call("transform", middle, "c.npy", "--mesh", "4,2", "--norm", "ortho", "--inverse")
    assert error(np.load("c.npy"), values()) < 6e-7


FORWARD = [
    ["--norm", "ortho", "--axes", "2,0"],
    ["--kind", "rfft", "--norm", "forward", "--spec", "-,x,y"],
    ["--kind", "dct-2", "--method", "transpose"],
    ["--kind", "hfft", "--order", "any", "--axes", "2"],
    ["--kind", "dct-3"],  # which is the inverse of another as well, and must not be taken for it
    ["--kind", "dst-3", "--norm", "ortho"],
]


@pytest.mark.quick(0)
@pytest.mark.parametrize("flags", FORWARD)
def test_the_inverse_needs_no_flags(flags: list[str]) -> None:
    """Catches a flag that the record lacks, odd lengths that become even, and a mesh that must be repeated."""
    real = "--kind" in flags and "hfft" not in flags
    array = values(np.float32 if real else np.complex64)
    if "hfft" in flags:  # half of a spectrum, whose ends are real
        array = np.fft.ihfft(values(np.float32)[..., :4]).astype(np.complex64)
    np.save("a.npy", array)
    call("transform", "a.npy", "b.zarr", "--mesh", "2,2", *flags)
    record = json.loads(call("transform", "b.zarr", "c.zarr", "--inverse", "--json"))
    assert record["mesh"] == {"x": 2, "y": 2}
    with open_array("c.zarr") as source:
        assert source.shape == array.shape
        assert error(source[...], array) < 1e-6


@pytest.mark.more
def test_flags_are_heard_before_the_file() -> None:
    """Catches flags that are ignored in favour of the file's record, and a mesh that was not given."""
    np.save("a.npy", values())
    call("transform", "a.npy", "b.zarr", "--mesh", "2,2", "--norm", "ortho")
    call("transform", "b.zarr", "c.npy", "--inverse", "--norm", "forward", "--mesh", "4")
    assert error(np.load("c.npy"), values() * np.sqrt(values().size)) < 1e-6
    call("transform", "b.zarr", "d.npy", "--inverse", "--axes", "1")
    once = np.fft.ifft(np.fft.fftn(values().astype(complex), norm="ortho"), axis=1, norm="ortho")
    assert error(np.load("d.npy"), once) < 1e-6
    call("transform", "b.zarr", "e.npy")  # forward: the mesh alone is taken from the file
    assert error(np.load("e.npy"), np.fft.fftn(np.fft.fftn(values().astype(complex), norm="ortho"))) < 1e-6
    assert "has no record of a mesh: give one, as --mesh 2,2,2" in refused("transform", "a.npy", "f.npy")
    text = Path("b.zarr/data/zarr.json").read_text()
    Path("b.zarr/data/zarr.json").write_text(re.sub(r'"x": *2', '"x": 1000', text))
    assert "was made on 2000 devices" in refused("transform", "b.zarr", "g.npy", "--inverse")


@pytest.mark.quick(0)
@pytest.mark.parametrize(
    ("dtype", "precision", "result"),
    [
        (np.float64, "default", np.complex128),
        (np.complex128, "default", np.complex128),
        (np.float32, "default", np.complex64),
        (np.int64, "default", np.complex128),
        (np.int32, "default", np.complex64),
        (np.complex64, "float64", np.complex128),
        (np.complex128, "float32", np.complex64),
        (np.float64, "float32", np.complex64),
        (np.complex64, "1e-9", np.complex128),
        (np.complex128, "1e-6", np.complex64),
    ],
)
def test_precision_is_that_of_the_input_or_as_asked(dtype: Any, precision: str, result: Any) -> None:
    """Catches double precision lost on the way, and integers wrapped to 32 bits."""
    array = values(dtype) + (2**40 if dtype == np.int64 else 0)
    np.save("a.npy", array)
    call("transform", "a.npy", "b.npy", "--mesh", "2,2", "--precision", precision)
    got = np.load("b.npy")
    assert got.dtype == result
    assert error(got, np.fft.fftn(array.astype(complex))) < (4e-7 if result == np.complex64 else 2e-15)


@pytest.mark.more
def test_a_scan_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Catches whatever breaks the README's first command: nibabel's example, uneven, on 2 x 2 x 2 devices; and a way
    to find it that needs what only tests install."""
    nibabel = pytest.importorskip("nibabel")
    pytest.importorskip("matplotlib")
    without_tests = tmp_path_factory.mktemp("hides")
    (without_tests / "pytest.py").write_text("raise ImportError")
    lines = r'^volume=\$\(python -c "(.*)"\)(\S*)\nmeshfft transform "\$volume" (.*)$'
    finds, name, words = re.findall(lines, README.read_text(), re.MULTILINE)[0]
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(without_tests))
        scan = python("-c", finds).stdout.strip() + name
    printed = call("transform", scan, *words.split())
    assert error(np.load("spectrum.npy"), np.fft.fftn(nibabel.load(scan).get_fdata(), axes=(0, 1, 2))) < 4e-7
    assert Path("spectrum.png").read_bytes()[1:4] == b"PNG"
    assert sorted(os.listdir()) == ["spectrum.npy", "spectrum.png"]
    assert "128 x 96 x 24 x 2 complex64" in printed
    assert "Wrote spectrum.npy: complex64 128 x 96 x 24 x 2." in printed


def test_json_is_one_object_and_nothing_else() -> None:
    """Catches words around the object, a step without its times, and keys that other programs rely on."""
    np.save("a.npy", values())
    record = json.loads(call("transform", "a.npy", "b.npy", "--mesh", "2,2", "--json"))
    assert (record["input"], record["output"], record["plot"]) == ("a.npy", "b.npy", None)
    assert record["shape"] == list(SIZES)
    steps = [step["step"] for step in record["steps"]]
    assert [row["step"] for row in record["measured"]] == ["read", *steps, "write"]
    assert all(row["run_seconds"] > 0 for row in record["measured"])
    assert all(row["compile_seconds"] > 0 for row in record["measured"][1:-1])


class Stage:
    """A step that takes a while to be traced, and none to be run."""

    name, dtype, machine = "slow", np.dtype("f4"), SimpleNamespace(chip=None)

    def __init__(self, **options: str) -> None:
        self.walk = SimpleNamespace(compiler_options=lambda *_: tuple(options.items()))

    def __call__(self, x: jax.Array) -> jax.Array:
        time.sleep(0.2)
        return x + 1


def test_compiling_and_running_are_timed_apart() -> None:
    """Catches the two exchanged, and steps that are traced again when they run."""
    said: list[Any] = []
    progress = output.Progress(lambda now, event: said.append((event, now.part, now.done)))
    stages: Any = SimpleNamespace(stages=(Stage(), Stage()))
    y: Any = run_stages(stages, lambda: jax.numpy.zeros(2), progress)
    progress.end()
    assert y.tolist() == [2, 2]
    read, *steps = progress.timings
    assert read.compile_seconds is None and [step.step for step in steps] == ["slow", "slow"]
    assert all((step.compile_seconds or 0) > 0.2 > step.run_seconds for step in steps)
    begun = [(part, done) for event, part, done in said if event == "begin"]
    assert begun == [("read", 0), ("compile slow", 0), ("slow", 0), ("compile slow", y.nbytes), ("slow", y.nbytes)]
    assert progress.done == 2 * y.nbytes


def test_steps_are_compiled_with_the_options_of_the_chip() -> None:
    """Catches steps on an accelerator whose messages wait for the products, which the plan itself sends meanwhile."""
    stages: Any = SimpleNamespace(stages=[Stage(no_such_option="1")])
    with pytest.raises(RuntimeError, match="no_such_option"):
        run_stages(stages, lambda: jax.numpy.zeros(2), output.Progress(lambda now, event: None))


def test_existing_output_needs_leave() -> None:
    """Catches a result of yesterday lost, an input changed by its own output, and --overwrite without effect."""
    np.save("a.npy", values())
    np.save("b.npy", values())
    with pytest.MonkeyPatch.context() as patch:
        forbid(patch)
        assert "b.npy exists" in refused("transform", "a.npy", "b.npy", "--mesh", "2")
        assert "a.npy is a.npy, which is read" in refused("transform", "a.npy", "a.npy", "--mesh", "2", "--overwrite")
    for name in ("a.npy", "b.npy"):
        np.testing.assert_array_equal(np.load(name), values())
    call("transform", "a.npy", "b.npy", "--mesh", "2", "--overwrite")
    assert error(np.load("b.npy"), np.fft.fftn(values())) < 4e-7
