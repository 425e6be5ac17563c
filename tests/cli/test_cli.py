"""The command line: what it computes, prints and refuses, and that it leaves nothing half done."""

import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from commands import call, refused
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from rich.console import Console
from typer.testing import CliRunner

import meshfft
from meshfft.cli import devices, flags, output
from meshfft.cli.app import app, main
from meshfft.cli.output import describe
from meshfft.cli.plan import _print_compiled, _why
from meshfft.cli.transform import run_stages
from meshfft.inspect.hlo import collectives
from meshfft.io import open_array, writing, zarr_writer
from meshfft.io.grid import Grid
from meshfft.out_of_core import journal

README = Path(__file__).parents[2] / "README.md"
SIZES = (7, 6, 5)  # divided by no mesh axis but one


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own, a terminal of 80 columns, and JAX's precision put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    before = jax.config.read("jax_enable_x64")
    yield tmp_path
    jax.config.update("jax_enable_x64", before)


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs a fresh Python on the CPU that finds the same library and no other of this process's settings of JAX."""
    path = os.pathsep.join([str(Path(meshfft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)


def values(dtype: Any = np.complex64) -> np.ndarray:
    random = np.random.default_rng(1)
    array = random.normal(size=SIZES) + 1j * random.normal(size=SIZES)
    return (array if np.dtype(dtype).kind == "c" else array.real * 100).astype(dtype)


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """Relative error in the L2 norm."""
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


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
        json.loads(call("plan", "64,64,64", "--mesh", "2,2,2", "--wire", wire, "--json")) for wire in ("exact", "int16")
    )
    assert 4e-7 < error(np.load("b.npy"), np.fft.fftn(values().astype(complex))) <= lossy["error_expected"]
    assert lossy["wire"] == "int16" and 0.5 <= lossy["bytes_per_device"] / exact["bytes_per_device"] <= 0.54
    assert "leave out --wire" in refused(
        "transform", "a.npy", "c.npy", "--mesh", "2", "--wire", "int16", "--memory", "1GB"
    )


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


@pytest.mark.parametrize("flags", FORWARD)
def test_the_inverse_needs_no_flags(flags: list[str]) -> None:
    """Catches a flag that the file does not tell, odd lengths that come back even, and a mesh that has to be said."""
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


def test_flags_are_heard_before_the_file() -> None:
    """Catches flags that are given and ignored since the file knows better, and a mesh that nobody gave."""
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


def test_arrays_larger_than_memory_go_in_passes() -> None:
    """Catches --memory without effect or heed, a plan that is not shown first, and an output that differs."""
    np.save("a.npy", values())
    printed = call("transform", "a.npy", "b.zarr", "--mesh", "2", "--memory", "9kB")
    assert "passes over the disk" in printed and "pass 1" in printed and "can be resumed" in printed
    assert "Python, JAX and the compiled programs take" in printed
    steps = printed[printed.index("step ") :].splitlines()
    assert steps[0].split() == ["step", "s"] and steps[2].startswith("compile"), "no column of zeros for passes"
    assert float(steps[2].split()[1]) > 0
    record = json.loads(call("transform", "b.zarr", "c.npy", "--inverse", "--memory", "9kB", "--json"))
    assert record["peak_bytes"] <= 9000 and len(record["passes"]) == 2
    assert error(np.load("c.npy"), values()) < 6e-7
    whole = json.loads(call("transform", "a.npy", "d.npy", "--mesh", "2", "--memory", "1MB", "--json"))
    assert "passes" not in whole  # all of it fits
    words = ["transform", "a.npy", "e.npy", "--mesh", "2"]
    assert "688 bytes with its copies, --memory is 100: give at least 1100" in refused(*words, "--memory", "0.1kB")
    assert "'6 apples' is no size" in refused(*words, "--memory", "6 apples")
    np.save("w.npy", values().astype("c16"))
    wide = refused("transform", "w.npy", "e.npy", "--mesh", "2", "--memory", "0.1kB")
    assert re.search(r"give at least \d+, or --precision float32$", wide), "flags, not arguments of Python"
    assert "no run to e.npy is unfinished" in refused(*words, "--resume")


def test_passes_are_planned_without_a_file() -> None:
    """Catches a plan of passes that is not the one that runs, and flags that it would ignore."""
    np.save("a.npy", values(np.float32))
    how = ["--mesh", "2,2", "--memory", "9KB", "--json"]
    ran = json.loads(call("transform", "a.npy", "b.zarr", *how))
    planned = json.loads(call("plan", "7,6,5", "--dtype", "float32", *how))
    assert len(planned["passes"]) == 2 and {name: ran[name] for name in planned} == planned
    assert "2 passes over the disk" in call("plan", "7,6,5", "--dtype", "float32", *how[:-1])
    assert "--wire says nothing of passes" in refused("plan", "7,6,5", *how, "--wire", "int16")
    assert "--topology says nothing of passes" in refused("plan", "7,6,5", *how, "--topology", "v3:2x2")


def test_an_interrupt_says_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches Ctrl-C that says nothing, or not how to resume; and --resume in another budget than is said, or on
    another mesh, which has other tiles, refused as a damaged journal."""
    np.save("a.npy", values())
    words, done = ["transform", "a.npy", "b.zarr", "--mesh", "2", "--memory", "9kB"], list[int]()

    def interrupted(*_: Any) -> None:
        done.append(1)
        if len(done) == 3:
            raise KeyboardInterrupt
        add(*_)

    add = journal.Journal.add
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "add", interrupted)
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 130
    said = [line for line in result.stderr.splitlines() if line]
    assert len(said) == 1 and re.search(r"interrupted: 2 of \d+ tiles kept beside b\.zarr", said[0])
    assert "the same command with --resume continues" in said[0]
    assert "has --memory 9000, this one has 10000: leave out --memory" in refused(*words[:-1], "10kB", "--resume")
    assert "mesh {'x': 2}, this one has {'x': 1}: give the same" in refused(*words[:4], "1", *words[5:], "--resume")
    assert "that of the unfinished run, of 2 devices a process, as --mesh 2" in refused(*words[:3], "--resume")
    assert re.search(r"2 of \d+ tiles are done; [\d.]+ kB to read", call(*words, "--resume"))


def test_passes_go_on_where_they_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches --resume that starts again, and an unfinished run that is forgotten without it."""
    np.save("a.npy", values())
    words = ["transform", "a.npy", "b.zarr", "--mesh", "2", "--memory", "9kB"]
    flush, done = zarr_writer.ZarrSink.flush, list[int]()

    def full(store: Any) -> None:
        done.append(1)
        if len(done) >= 3:
            raise OSError("No space left on device")
        flush(store)

    with monkeypatch.context() as patch:
        patch.setattr(zarr_writer.ZarrSink, "flush", full)
        assert CliRunner().invoke(app, words).exit_code == 2
    assert sorted(os.listdir()) == [".b.zarr.passes", "a.npy"]
    assert "--resume continues it, --overwrite starts again" in refused(*words)
    call(*words[:-2], "--resume")
    with open_array("b.zarr") as source:
        assert error(source[...], np.fft.fftn(values().astype(complex))) < 4e-7
    assert sorted(os.listdir()) == ["a.npy", "b.zarr"]


@pytest.mark.parametrize(
    ("dtype", "precision", "result"),
    [
        (np.float64, "default", np.complex128),
        (np.complex128, "default", np.complex128),
        (np.float32, "default", np.complex64),
        (np.int64, "default", np.complex64),
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


def test_times_of_every_step_and_their_sum(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches compiling counted as running, a wrong total, and names in brackets eaten as markup."""
    monkeypatch.setenv("COLUMNS", "80")
    output.print_timings([output.Timing("read", None, 0.5), output.Timing("fft [red]X[/red]", 2, 0.25)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["read", "0.500"] in lines
    assert ["fft", "[red]X[/red]", "2.000", "0.250"] in lines
    assert lines[-1] == ["total", "2.000", "0.750"]


class Stage:
    """A step that takes a while to be traced, and none to be run."""

    name = "slow"

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


def test_one_bar_of_bytes_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a bar that counts parts, does not say how long it takes, is too wide, or is drawn by every process."""
    drawn = io.StringIO()
    terminal = Console(file=drawn, force_terminal=True, width=80)
    monkeypatch.setattr(output, "Console", lambda **_: terminal)
    with output.bar(4_000_000, in_bytes=True, shown=False) as report:
        report.begin("hidden")
    assert "hidden" not in drawn.getvalue()
    with output.bar(4_000_000, in_bytes=True) as report:
        for done, part in enumerate(("read", "fft [X]", "write"), 1):
            report.begin(part)
            report.advance(1_000_000)
            deadline = time.monotonic() + 30
            while f"{done}.0/4.0" not in drawn.getvalue() and time.monotonic() < deadline:
                time.sleep(0.02)  # it is drawn some ten times a second
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn.getvalue()))
    assert any("fft [X]" in line and "2.0/4.0 MB" in line and line.rstrip().endswith("left") for line in lines), lines
    assert all(len(line) <= 80 for line in lines)


def test_plan_needs_no_devices() -> None:
    """Catches a plan that asks for the 2048 devices it describes, or does not fit the terminal."""
    printed = call("plan", "8192,8192,8192", "--mesh", "8,16,16")
    assert "8192 x 8192 x 8192 complex64" in printed
    record = json.loads(call("plan", "8192,8192,8192", "--mesh", "8,16,16", "--dtype", "complex128", "--json"))
    assert record["mesh"] == {"x": 8, "y": 16, "z": 16}
    assert record["dtype"] == "complex128"
    assert record["peak_bytes_per_device"] >= 2 * 16 * 8192**3 // 2048


def test_plan_in_double_precision() -> None:
    """Catches --precision float64 refused, since JAX has 64-bit types switched off."""
    record = json.loads(call("plan", "8,8", "--mesh", "2", "--precision", "float64", "--json"))
    assert record["out_dtype"] == "complex128"


@pytest.mark.parametrize(
    ("error", "topology", "tier"),
    [
        ("1e-10", None, "float64"),
        (".5e-5", None, "float32"),
        ("1E-10", "v5e:2x2", "int8x6"),
        ("1", "v5p:2x2x1", "float32"),
    ],
)
def test_precision_as_an_error_to_stay_within(error: str, topology: str | None, tier: str) -> None:
    """Catches a number taken for an unknown name, and a plan that keeps to itself which tier it took for it."""
    words = ("plan", "64,64", "--mesh", "4", "--precision", error, *(("--topology", topology) if topology else ()))
    record = json.loads(call(*words, "--json"))
    assert record["precision"] == tier and tier in call(*words)
    assert record["error_expected"] <= float(error)


def test_plan_shows_the_walk_that_runs_here() -> None:
    """Catches a plan for devices that nobody has: another walk than that of `mf.fftn`, and no seconds."""
    record = json.loads(call("plan", "64,64,64", "--mesh", "2,2,2", "--json"))
    devices = jax.make_mesh((2, 2, 2), ("x", "y", "z"))
    x = jax.ShapeDtypeStruct((64, 64, 64), np.complex64, sharding=NamedSharding(devices, P("x", "y", "z")))
    assert record["steps"] == meshfft.plan(x.shape, mesh=devices).to_dict()["steps"]
    assert record["seconds"] > 0 and record["chip"] == "cpu"
    assert collectives(jax.jit(meshfft.fftn).lower(x).compile()) == {"all-to-all": record["all_to_alls"]}
    more = json.loads(call("plan", "64,64,64", "--mesh", "4,4,4", "--json"))
    assert more["chip"] == "cpu" and more["seconds"] > 0


def test_plan_says_how_long_compiling_takes() -> None:
    """Catches an estimate that is missing for a pod, or made up for machines whose compiler was not measured."""
    assert "s of one core, an estimate" in call("plan", "16,16", "--topology", "v3:2x2", "--mesh", "8")
    assert json.loads(call("plan", "16,16", "--topology", "v3:2x2", "--mesh", "8", "--json"))[ESTIMATE][0] > 1
    assert json.loads(call("plan", "16,16", "--topology", "h100:8", "--mesh", "8", "--json"))[ESTIMATE] is None
    assert "an estimate" not in call("plan", "16,16", "--mesh", "8")


def test_plan_of_the_inverse_and_of_some_axes() -> None:
    """Catches flags of `plan` that change nothing."""
    assert "inverse" in call("plan", "8,8", "--mesh", "2", "--inverse")
    flags = ["plan", "16,16", "--mesh", "4", "--json"]
    layouts = {json.loads(call(*flags, *more))["out_layout"] for more in ([], ["--axes", "1"], ["--spec", "-,x"])}
    assert len(layouts) == 3


@pytest.mark.slow
def test_plan_for_a_pod_that_is_only_named() -> None:
    """Catches a free mesh that is not the best of those tried, keys that go missing, and a total that is none."""
    record = json.loads(call("plan", "2048,2048,2048", "--topology", "v3:32x32", "--json"))
    spent = record["seconds_by_resource"]
    assert record["fits"] is True and record["chip"] == "v3" and len(record["steps"]) >= 1
    assert max(spent["products"], spent["links"]) < record["seconds"] == spent["total"] < sum(spent.values())
    assert int(np.prod(list(record["mesh"].values()))) == 2048
    others = record["runners_up"]
    assert all(other["seconds"] >= record["seconds"] for other in others if other["fits"]) and len(others) > 3
    given = json.loads(call("plan", "2048,2048,2048", "--topology", "v3:32x32", "--mesh", "8,16,16", "--json"))
    assert given["mesh"] == {"x": 8, "y": 16, "z": 16} and given["seconds"] >= record["seconds"]
    assert {other["method"] for other in given["runners_up"]} == {"transpose", "cooley-tukey", "kdft"}


def test_plan_says_who_else_ran_and_what_does_not_fit() -> None:
    """Catches a table wider than the terminal, a winner without its rivals, and a plan too large that is not told."""
    printed = call("plan", "512,512,512", "--topology", "v3:4x4", "--mesh", "4,8")
    assert "Runners-up, modelled:" in printed and "more" in printed and "fits:" in printed
    large = " ".join(call("plan", "8192,8192,8192", "--topology", "v3:4x4", "--method", "kdft").split())
    assert (
        "does not fit:" in large
        and "more than the 16.6 GB of a device" in large
        and "times as many devices would do" in large
        and "but the largest" not in large
    )
    huge = " ".join(call("plan", "16384,16384,16384", "--topology", "v5e:16x16").split())
    assert "times as many devices would do, but the largest v5e has 256: plan for a chip with more memory" in huge


def test_what_the_compiler_says_fits_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches lines that a terminal breaks, a peak without the capacity, and the winner among its rivals."""
    best, other = (meshfft.plan((512,) * 3, topology="v5e:2x2", method=method) for method in ("auto", "transpose"))
    seconds = {"total": 0.00887, "compute": 0.00253, "links": 0.00855}
    one = {"step": 0, "times": 16, "asynchronous": True, "covered": 1, "waited_seconds": 0.00355}
    cycles = [{"step": 0, "unit": "vector", "cycles": 10**6}]
    made = {"cycles": cycles, "collectives": [one], "kernels": {"times": 16, "cycles": 10**6}}
    _print_compiled(best, {**made, "seconds_modelled": seconds, "peak_bytes_per_device": 1_040_000_000})
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "fits: 1.04 GB of 16.0 GB per device" in printed and "16 of 16 collectives" in " ".join(printed.split())
    assert other.walk == best.walk and _why(best, other) == "the same walk"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_what_takes_its_time(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches half a minute of silence while every mesh of a pod is tried, and a line of that in a log."""
    screen = io.StringIO()
    monkeypatch.setattr(output, "Console", lambda stderr: Console(file=screen, force_terminal=terminal))
    with output.waiting("finding the cheapest plan"):
        pass
    assert ("finding the cheapest plan" in screen.getvalue()) == terminal


def test_machines_that_cannot_be_planned_for_are_refused() -> None:
    """Catches a machine that does not exist, or has other devices, planned for all the same."""
    plan = ["plan", "64,64,64"]
    assert "as --mesh 2,2,2" in refused(*plan)
    assert "begin with one of cpu, v2, v3" in refused(*plan, "--topology", "v1:4x4")
    assert "v3:32x32" in refused(*plan, "--topology", "v3:4x4x4")
    assert "larger than the largest v3" in refused(*plan, "--topology", "v3:64x64")
    assert "has 4 devices, v3:4x4 has 32" in refused(*plan, "--topology", "v3:4x4", "--mesh", "2,2")
    assert "add --topology" in refused(*plan, "--mesh", "2,2", "--compile")
    assert "give --mesh too" in refused(*plan, "--topology", "v3:4x4", "--spec", "x,y")
    assert "cannot be laid over shape (3, 3)" in refused("plan", "3,3", "--topology", "v3:4x4")


def test_info_says_what_a_report_needs() -> None:
    """Catches missing facts, and a table wider than the terminal."""
    printed = call("info")
    record = json.loads(call("info", "--json"))
    assert record["versions"]["jax"] == jax.__version__
    assert sum(device["count"] for device in record["devices"]) == len(jax.devices())
    assert record["memory_available_bytes"] > 0
    assert "measured" not in {figure["mark"] for figure in record["rates"]["figures"].values()}
    assert set(record["extras"]) == {"files", "plots", "tpu"}
    assert all(name in printed for name in (*record["versions"], "devices", "memory", "extra files"))
    assert "(measured elsewhere)" in printed and "(measured)" not in printed and "none is measured" in printed


def test_help_is_not_broken_twice() -> None:
    """Catches paragraphs whose own line breaks are kept when a terminal of 80 columns wraps them: ragged lines."""
    for command in app.registered_commands:
        for paragraph in inspect.cleandoc(command.callback.__doc__ or "").split("\n\n")[1:]:
            lines = paragraph.splitlines()
            assert len(lines) == 1 or max(map(len, lines)) <= 78, lines


@pytest.mark.parametrize("words", [["--help"], ["transform", "--help"], ["plan", "--help"], ["info", "--help"]])
def test_help_fits_the_terminal(words: list[str]) -> None:
    """Catches help that is cut off or wrapped by the terminal."""
    assert "Usage" in call(*words)


ESTIMATE = "compile_core_seconds_estimated"
BAD_FLAGS = [
    (["--mesh", "2,x"], "--mesh '2,x'", "as 2,2,2"),
    (["--mesh", "0"], "--mesh '0'", "at least 1"),
    (["--mesh", "2,-2"], "--mesh '2,-2'", "at least 1"),
    (["--mesh", ""], "--mesh ''", "as 2,2,2"),
    (["--mesh", "1,1,1,1,1"], "5 axes", "at most 4"),
    (["--mesh", "1,1,1,1"], "--mesh 1,1,1,1", "--spec x+y+z+w"),
    (["--mesh", "2,2", "--spec", "x,q"], "'q'", "x=2, y=2"),
    (["--mesh", "2,2", "--spec", "x,x"], "'x'", "twice"),
    (["--mesh", "2,2", "--spec", "x+x"], "'x'", "twice"),
    (["--mesh", "2,2", "--spec", "-,-,x,y"], "4 entries", "at most 3"),
    (["--mesh", "2", "--method", "fast"], "--method 'fast'", "auto, transpose, cooley-tukey, kdft"),
    (["--mesh", "2", "--order", "none"], "--order 'none'", "natural, any"),
    (["--mesh", "2", "--wire", "int8"], "--wire 'int8'", "exact, int24, int16, bfloat16"),
    (["--mesh", "2", "--norm", "l2"], "--norm 'l2'", "backward, ortho, forward"),
    (["--mesh", "2", "--axes", "0,3"], "3", "-3 to 2"),
    (["--mesh", "2", "--axes", "0,a"], "--axes '0,a'", "as 0,1,2"),
    (["--mesh", "2", "--axes", "0,-3"], "0", "twice"),
    (["--mesh", "2", "--method", "cooley-tukey", "--kind", "dct-2"], "no cosines", "--method auto"),
]


@pytest.mark.parametrize(("flags", "wrong", "right"), BAD_FLAGS)
def test_bad_flags_are_refused(flags: list[str], wrong: str, right: str) -> None:
    """Catches a bad value that ends in a traceback, in another exit code, or in a line without value and remedy."""
    np.save("a.npy", values())
    for words in (["transform", "a.npy", "b.npy"], ["plan", "7,6,5"]):
        line = refused(*words, *flags)
        assert wrong in line and right in line


def test_bad_values_of_one_command_are_refused() -> None:
    """Catches the same in flags that only one command has."""
    np.save("a.npy", values())
    to = ["transform", "a.npy", "b.npy", "--mesh", "2"]
    for none in ("half", "nan", "-1e-9", "1e", "inf"):
        assert f"--precision '{none}' is not known" in refused(*to, "--precision", none)
    for tiny in ("1e-20", "0"):
        assert "beyond float64: give an error of at least 1.7e-15" in refused(*to, "--precision", tiny)
    assert "leave out the dataset name 'x'" in refused(*to, "--dataset", "x")
    assert "end it in .png, .pdf, .svg" in refused(*to, "--plot", "a.gif")
    assert "plot the forward transform" in refused(*to, "--plot", "a.png", "--inverse")
    assert "the shape '8,8.5'" in refused("plan", "8,8.5", "--mesh", "2")
    assert "complex64, complex128" in refused("plan", "8,8", "--mesh", "2", "--dtype", "float16")
    assert "64 devices and there are 8 cpu" in refused(*to[:-1], "64")


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, putting an array on the devices is a failure."""
    monkeypatch.setattr("meshfft.shard", lambda *_: pytest.fail("went on"))


def test_bad_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches inputs and outputs that cannot be, found out after computing or told unclearly."""
    np.save("a.npy", values())
    forbid(monkeypatch)
    np.save("objects.npy", np.array([None]), allow_pickle=True)
    Path("cut.npy").write_bytes(Path("a.npy").read_bytes()[:-1])
    mesh = ["--mesh", "2"]
    assert "none.npy does not exist" in refused("transform", "none.npy", "b.npy", *mesh)
    assert "Python objects" in refused("transform", "objects.npy", "b.npy", *mesh)
    assert "cut short" in refused("transform", "cut.npy", "b.npy", *mesh)
    assert "end it in .npy or .zarr" in refused("transform", "a.npy", "b.tif", *mesh)
    assert "make it first" in refused("transform", "a.npy", "no/b.npy", *mesh)
    Path("link.npy").symlink_to("elsewhere.npy")
    assert "replace it with --overwrite" in refused("transform", "a.npy", "link.npy", *mesh)
    writing.create_sink(Path("in.zarr"), (2,), "f4", Grid((2,)), kind=".zarr").write((slice(0, 2),), np.ones(2))
    assert "in.zarr/out.zarr lies inside in.zarr" in refused("transform", "in.zarr", "in.zarr/out.zarr", *mesh)


def test_existing_output_needs_leave() -> None:
    """Catches a result of yesterday lost, an input changed by its own output, and --overwrite without effect."""
    np.save("a.npy", values())
    with pytest.MonkeyPatch.context() as patch:
        forbid(patch)
        assert "a.npy exists" in refused("transform", "a.npy", "a.npy", "--mesh", "2")
    np.testing.assert_array_equal(np.load("a.npy"), values())
    call("transform", "a.npy", "a.npy", "--mesh", "2", "--overwrite")
    assert error(np.load("a.npy"), np.fft.fftn(values())) < 4e-7


def test_too_little_memory_is_refused_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an array read for hours until the system kills the process; the plan is shown all the same."""
    np.save("a.npy", values())
    forbid(monkeypatch)
    monkeypatch.setattr(devices, "available_bytes", lambda: 1000)
    line = refused("transform", "a.npy", "b.npy", "--mesh", "2")
    assert "1e-06 GB are free" in line and "--precision float32" in line
    assert "per device at the peak" in CliRunner().invoke(app, ["transform", "a.npy", "b.npy", "--mesh", "2"]).stdout


def test_too_little_disk_is_refused_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a result computed for which there is no room, or room counted at half its complex size."""
    np.save("a.npy", values())
    forbid(monkeypatch)
    nbytes = values().nbytes
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: SimpleNamespace(free=nbytes - 1))
    assert "free some" in refused("transform", "a.npy", "b.npy", "--mesh", "2")


@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), MemoryError("3 GB"), RuntimeError("XLA\nfell")]
)
def test_what_fails_on_the_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    """Catches a traceback, and a part of an output, when writing fails at its end."""
    np.save("a.npy", values())

    def fail(*_: Any) -> None:
        raise fault

    monkeypatch.setattr("meshfft.atomic._sync", fail)
    assert describe(fault) in refused("transform", "a.npy", "b.npy", "--mesh", "2")


def test_errors_are_told_in_one_line() -> None:
    """Catches errors of the system told without their file, and texts of several lines."""
    assert describe(PermissionError(13, "Permission denied", "b.npy")) == "b.npy: Permission denied"
    assert describe(RuntimeError("a\n  b")) == "a b"
    assert describe(ValueError()) == "ValueError"


def test_default_spec_and_entries() -> None:
    """Catches mesh axes that cut the wrong dimensions."""
    mesh = {"x": 2, "y": 4}
    assert flags.read_spec(None, mesh, 3) == ("x", "y")
    assert flags.read_spec("-, y+x ,,x", mesh, 4) == (None, ("y", "x"), None, ("x",))


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_memory_is_the_hosts_or_a_devices(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    """Catches CPU devices that each count on the whole host, and accelerators measured by it."""
    monkeypatch.setattr(devices, "available_bytes", lambda: 100)
    stats = {"bytes_limit": 60, "bytes_in_use": 10}
    four: Any = [SimpleNamespace(platform=platform, memory_stats=lambda: stats)] * 4
    devices.check_memory({"cpu": 25, "gpu": 50}[platform], four)
    with pytest.raises(MemoryError, match=f"4 {platform} devices"):
        devices.check_memory({"cpu": 26, "gpu": 51}[platform], four)


GROUPS = {
    "no group": ({}, 1000 * 1024),
    "version 2": (
        {
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/a/memory.max": "5000",
            "sys/fs/cgroup/a/memory.current": "4000",
            "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 300\n",
            "sys/fs/cgroup/a/b/memory.max": "max",
            "sys/fs/cgroup/a/b/memory.current": "4000",
        },
        1300,
    ),
    "version 2, from inside": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "5000", "sys/fs/cgroup/memory.current": "4500"},
        500,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "8:cpu:/a\n4:memory:/not/mounted",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 200\n",
        },
        1200,
    ),
    "no limit": (
        {
            "proc/self/cgroup": "4:memory:/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000",
        },
        1000 * 1024,
    ),
}


@pytest.mark.parametrize(("files", "expected"), GROUPS.values(), ids=GROUPS)
def test_memory_within_containers(work: Path, files: dict[str, str], expected: int) -> None:
    """Catches the memory of the whole machine taken for that of a container or job that may use less."""
    for name, text in {"proc/meminfo": "MemTotal: 2000 kB\nMemAvailable: 1000 kB\n", **files}.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    assert devices.available_bytes(work) == expected


def test_memory_without_linux(work: Path) -> None:
    """Catches a failure where the system has no such files."""
    assert devices.available_bytes(work) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_fresh_process_starts_its_own_devices() -> None:
    """Catches devices that exist only because the tests made them, tracebacks, and progress mixed into the output."""
    np.save("a.npy", values(np.float64))
    run = python("-m", "meshfft.cli.app", "transform", "a.npy", "b.npy", "--mesh", "3,2", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["mesh"] == {"x": 3, "y": 2}
    assert error(np.load("b.npy"), np.fft.fftn(values(np.float64))) < 2e-15


def test_importing_starts_no_device() -> None:
    """Catches devices taken on import: they can then no longer be set up, and --help takes seconds."""
    code = "import meshfft.cli.app, jax; jax.config.update('jax_num_cpu_devices', 3); assert jax.device_count() == 3"
    assert python("-c", code).returncode == 0


def test_a_terminated_run_leaves_nothing() -> None:
    """Catches a part of an output left behind when a scheduler ends the run while it writes."""
    np.save("a.npy", values())
    code = (
        "import os, signal, sys, meshfft.atomic as atomic; from meshfft.cli.app import main;"
        "atomic._sync = lambda _: os.kill(os.getpid(), signal.SIGTERM);"
        "sys.argv[1:] = ['transform', 'a.npy', 'b.npy', '--mesh', '2']; main()"
    )
    assert python("-c", code).returncode == 128 + 15
    assert os.listdir() == ["a.npy"]


def test_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a version that is not the installed package's."""
    monkeypatch.setattr("meshfft.extras.metadata.version", lambda name: {"meshfft": "1.2.3"}[name])
    assert call("--version") == "meshfft 1.2.3\n"


@pytest.mark.slow
def test_a_closed_output_never_means_success(work: Path) -> None:
    """Catches work that is skipped because nobody reads about it, exit code 0 for it, and words written into OUT.

    A program that reads no more (`| true`), a stream closed from the start (`>&-`), a full disk behind it.
    """
    np.save("a.npy", values())
    program = f"{sys.executable} -m meshfft.cli.app"
    ends = ["| true", ">&-", ">/dev/full"]
    lines = [f"({program} transform a.npy {i}.npy --mesh 2; echo $? >&2) {end}" for i, end in enumerate(ends)]
    lines += [f"({program} {words}; echo $? >&2) >&-" for words in ("plan 8,8 --mesh 2 --json", "--help")]
    path = os.pathsep.join([str(Path(meshfft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": path, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    started = [subprocess.Popen(["bash", "-c", line], env=environment, **pipes) for line in lines]
    said = [process.communicate(timeout=100)[1].splitlines() for process in started]
    assert [lines[-1] for lines in said] == ["1"] * 5, said
    assert all("error: standard output was closed" in lines[-2] for lines in said), said
    for i in range(len(ends)):
        assert error(np.load(f"{i}.npy"), np.fft.fftn(values().astype(complex))) < 4e-7


HIDDEN = "\x1b[31m\x9b\u202e"
SHOWN = r"\x1b[31m\x9b\u202e"


def test_names_reach_the_terminal_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a name in a file, or of one, that colours, moves or turns round what a terminal shows."""
    h5py = pytest.importorskip("h5py")
    np.save(f"a{HIDDEN}.npy", values())
    assert f"Wrote b{SHOWN}.npy" in call("transform", f"a{HIDDEN}.npy", f"b{HIDDEN}.npy", "--mesh", "2")
    with h5py.File("a.h5", "w") as file:
        for name in ("one", f"two{HIDDEN}"):
            file[f"group{HIDDEN}/{name}"] = values(np.float32)
    assert f"group{SHOWN}/two{SHOWN}" in refused("transform", "a.h5", "c.npy", "--mesh", "2")
    assert f"no{SHOWN}" in refused("transform", f"no{HIDDEN}\n.npy", "c.npy", "--mesh", "2")
    output.say(HIDDEN)
    output.print_columns([HIDDEN], [[HIDDEN]])
    output.print_timings([output.Timing(HIDDEN, None, 0.5)])
    output.print_json({"name": HIDDEN + "\x7f"})
    printed = capsys.readouterr().out
    assert not set(printed) & set(HIDDEN + "\x7f") - set("[31m") and printed.count(SHOWN) == 4, printed


def test_a_command_line_that_is_wrong_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches names of files, as `*` gives them, that reach the terminal by way of what is wrong with a command."""
    for words in (["transform", "a", "b", f"c{HIDDEN}"], ["info", f"--{HIDDEN}"], [HIDDEN], ["plan"]):
        monkeypatch.setattr(sys, "argv", ["meshfft", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        line = capsys.readouterr().err
        assert ended.value.code == 2 and line.startswith("meshfft: error: ") and line.count("\n") == 1, line
        assert line.endswith(" --help.\n") and not set(line) & set("\x1b\x9b\u202e"), line


def test_one_place_prints() -> None:
    """Catches a command that prints past the one place where names are made harmless."""
    folder = Path(output.__file__).parent
    for path in folder.glob("*.py"):
        text = path.read_text()
        assert path.name == "output.py" or not re.search(
            r"typer\.echo\(|(?<!\w)print\(|Console\(|sys\.stdout\.write", text
        ), path


MANY = "9" * 400
ABSURD = [
    (["transform", "a.npy", "b.npy", "--mesh", "2", "--memory", MANY], "--memory '999"),
    (["transform", "a.npy", "b.npy", "--mesh", "2", "--memory", MANY + ".5TB"], "--memory '999"),
    (["transform", "a.npy", "b.npy", "--mesh", MANY], "--mesh '999"),
    (["transform", "a.npy", "b.npy", "--mesh", "9" * 5000], "--mesh '999"),
    (["transform", "a.npy", "b.npy", "--mesh", "\u0662"], "--mesh '\u0662'"),
    (["transform", "a.npy", "b.npy", "--mesh", "2", "--memory", "\u0662GB"], "--memory '\u0662GB'"),
    (["transform", "a.npy", "b.npy", "--mesh", "2", "--axes", MANY], "--axes '999"),
    (["transform", "a.npy", "b.npy", "--mesh", "2", "--axes", "0," * 99 + "1"], "--axes '0,0"),
    (["transform", "a.npy", "b.npy", "--mesh", "2", "--spec", "," * 10**5], "--spec has 100001 entries"),
    (["transform", "a.npy", "b.npy", "--distributed", "--processes", MANY], "--processes 999"),
    (
        ["transform", "a.npy", "b.npy", "--coordinator", f"a:{MANY}", "--processes", "2", "--process-id", "0"],
        "HOST:PORT",
    ),
    (["profile", MANY, "--mesh", "2"], "the shape '999"),
    (["profile", "8,8", "--mesh", "2", "--runs", MANY], "--runs 999"),
    (["plan", "8,8", "--mesh", MANY], "--mesh '999"),
    (["plan", "8" + ",8" * 40, "--mesh", "2"], "the shape '8,8"),
]


def test_interrupted_twice_it_ends_without_a_trace() -> None:
    """Catches a traceback of JAX's own end where the user interrupts once more while Python ends."""
    again = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT)"
    found = python(
        "-c", f"{again}; import sys; sys.argv = ['meshfft', '--version']; import meshfft.cli.app as a; a.main()"
    )
    assert found.returncode == -signal.SIGINT and found.stderr == "", found.stderr


@pytest.mark.parametrize(("words", "line"), ABSURD, ids=[f"{words[0]} {line.split()[0]}" for words, line in ABSURD])
def test_absurd_numbers_are_refused_by_name(words: list[str], line: str) -> None:
    """Catches a traceback, hours of work, and Python's own limits, which name no flag, for numbers of many digits."""
    np.save("a.npy", values())
    said = refused(*words)
    assert line in said and len(said) < 1100


def test_more_devices_than_one_process_can_have(work: Path) -> None:
    """Catches a command that hangs as it starts a million devices; in a process where JAX has not begun."""
    np.save("a.npy", values())
    ended = python("-m", "meshfft.cli.app", "transform", "a.npy", "b.npy", "--mesh", "1000000")
    assert ended.returncode == 2 and "one process, which can have 256 virtual ones at most" in ended.stderr, ended
    assert os.listdir(work) == ["a.npy"]
