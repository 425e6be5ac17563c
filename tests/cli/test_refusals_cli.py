"""Refusals of the command line: one line with the value and the remedy, before any work, and nothing half done."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import forbid, refused, values

from meshfft.cli import flags
from meshfft.cli.output import describe
from meshfft.io import writing
from meshfft.io.grid import ChunkGrid

pytestmark = pytest.mark.usefixtures("terminal")

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
    (["--mesh", "2", "--wire", "outer=int8"], "--wire 'int8'", "exact, int24, int16, bfloat16"),
    (["--mesh", "2", "--ring", "both"], "--ring 'both'", "auto, one-way, two-way"),
    (["--mesh", "2", "--ring", "one-way", "--method", "transpose"], "has no ring", "drop --ring, or use --method kdft"),
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
        assert "is out of reach of this transform" in refused(*to, "--precision", tiny)
    assert "leave out the dataset name 'x'" in refused(*to, "--dataset", "x")
    assert "end it in .png, .pdf, .svg" in refused(*to, "--plot", "a.gif")
    assert "plot the forward transform" in refused(*to, "--plot", "a.png", "--inverse")
    assert "the shape '8,8.5'" in refused("plan", "8,8.5", "--mesh", "2")
    assert "complex64, complex128" in refused("plan", "8,8", "--mesh", "2", "--dtype", "float16")
    assert "64 devices and there are 8 cpu" in refused(*to[:-1], "64")


def test_bad_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches impossible inputs and outputs that are found only after computing, or reported unclearly."""
    np.save("a.npy", values())
    forbid(monkeypatch)
    np.save("objects.npy", np.array([None]), allow_pickle=True)
    Path("cut.npy").write_bytes(Path("a.npy").read_bytes()[:-1])
    mesh = ["--mesh", "2"]
    assert "none.npy does not exist" in refused("transform", "none.npy", "b.npy", *mesh)
    assert "Python objects" in refused("transform", "objects.npy", "b.npy", *mesh)
    assert "cut short" in refused("transform", "cut.npy", "b.npy", *mesh)
    assert "end it in .npy or .h5" in refused("transform", "a.npy", "b.tif", *mesh)
    assert "make it first" in refused("transform", "a.npy", "no/b.npy", *mesh)
    Path("link.npy").symlink_to("elsewhere.npy")
    assert "replace it with --overwrite" in refused("transform", "a.npy", "link.npy", *mesh)
    writing.create_sink(Path("in.zarr"), (2,), "f4", ChunkGrid((2,))).write((slice(0, 2),), np.ones(2))
    assert "in.zarr/out.zarr lies inside in.zarr" in refused("transform", "in.zarr", "in.zarr/out.zarr", *mesh)


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
    """Catches system errors reported without their file, and messages of several lines."""
    assert describe(PermissionError(13, "Permission denied", "b.npy")) == "b.npy: Permission denied"
    assert describe(RuntimeError("a\n  b")) == "a b"
    assert describe(ValueError()) == "ValueError"


def test_default_spec_and_entries() -> None:
    """Catches mesh axes that cut the wrong dimensions."""
    mesh = {"x": 2, "y": 4}
    assert flags.read_spec(None, mesh, 3) == ("x", "y")
    assert flags.read_spec("-, y+x ,,x", mesh, 4) == (None, ("y", "x"), None, ("x",))


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


@pytest.mark.parametrize(("words", "line"), ABSURD, ids=[f"{words[0]} {line.split()[0]}" for words, line in ABSURD])
def test_absurd_numbers_are_refused_by_name(words: list[str], line: str) -> None:
    """Catches a traceback, hours of work, and Python's own limits, which name no flag, for numbers of many digits."""
    np.save("a.npy", values())
    said = refused(*words)
    assert line in said and len(said) < 1100
