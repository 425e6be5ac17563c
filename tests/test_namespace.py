"""The names of `import meshfft as mf`: what people find, call and look up."""

import doctest
import inspect
import pydoc
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

import jax
import numpy as np
import pytest

import meshfft as mf


def test_every_public_name_is_one_to_use() -> None:
    """Catches a module, or a helper, among the names that `dir`, tab and `import *` offer."""
    offered = dir(mf)
    assert offered == sorted(mf.__all__) and {"fftn", "plan", "Plan", "Points", "kdftn", "scipy_backend"} <= {*offered}
    for name in offered:
        value = getattr(mf, name)
        assert not inspect.ismodule(value) and (callable(value) or name == "scipy_backend"), name
        assert ">>>" in (value.__doc__ or ""), f"{name} has no docstring with an example"


def test_every_name_imported_for_users_is_offered() -> None:
    """Catches a public function that `__all__` forgets: one imported under its own name."""
    lines = inspect.getsource(mf).splitlines()
    named = {line.split(" as ")[1] for line in lines if line.startswith("from .") and " as " in line}
    assert {name for name in named if not name.startswith("_")} == {*mf.__all__}


def test_help_shows_the_functions() -> None:
    """Catches `help(meshfft)` as a list of modules alone."""
    shown = pydoc.plain(pydoc.render_doc(mf))
    assert "fftn(" in shown and "class Plan" in shown and metadata.version("meshfft") in shown


def test_help_opens_with_every_name_by_group() -> None:
    """Catches a public name that the text of the package forgets, one that is gone, and a line too wide for `help`."""
    text = mf.__doc__ or ""
    lists = [line for line in text.splitlines() if line.startswith("    ")]
    assert sorted(" ".join(lists).replace(",", " ").split()) == sorted(mf.__all__)
    assert max(map(len, lists)) <= 76 and text.splitlines()[0].endswith(".")


def _documented() -> Iterator[tuple[str, object, int]]:
    """Every public name of ours, and the methods of classes, with the columns by which `help` indents its text."""
    for name in mf.__all__:
        value = getattr(mf, name)
        kind = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
        if kind.__module__.startswith("meshfft"):
            yield name, kind, 4
            shown = {key: one for key, one in vars(kind).items() if key == "__call__" or not key.startswith("_")}
            for key, one in shown.items() if inspect.isclass(kind) else ():
                if inspect.isroutine(one) or isinstance(one, property):
                    yield f"{name}.{key}", one, 8


def test_help_reads_well_in_80_columns() -> None:
    """Catches a docstring whose lines a terminal of 80 columns breaks, and ten lines of types before its first."""
    for name, value, indent in _documented():
        if inspect.isfunction(value) and indent == 4:
            assert len(f"{name}{inspect.signature(value)}") <= 4 * 80, name
        for line in (inspect.getdoc(value) or "").splitlines():
            assert indent + len(line) <= 80, f"{name}: {line}"


@pytest.mark.quick(39, 44, 56)
@pytest.mark.parametrize("name", [name for name, value, _ in _documented() if ">>>" in (inspect.getdoc(value) or "")])
def test_examples_in_docstrings_run(name: str) -> None:
    """Catches an example of `help` and of the reference whose result is another."""
    text, runner = inspect.getdoc(getattr(mf, name)) or "", doctest.DocTestRunner(verbose=False)
    space = {"jax": jax, "jnp": jax.numpy, "np": np, "mf": mf}  # as in the reference
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as readers have them
        runner.run(doctest.DocTestParser().get_doctest(text, space, name, None, None))
    assert runner.tries > 0 and runner.failures == 0


def test_the_version_is_the_installed_one() -> None:
    """Catches a version kept in two places."""
    assert mf.__version__ == metadata.version("meshfft")


@pytest.mark.parametrize("slip", ["kdft", "solve", "inverse"])
def test_no_module_has_the_name_of_a_call(slip: str) -> None:
    """Catches `'module' object is not callable` where somebody means kdftn, ikdftn or plan.inverse."""
    with pytest.raises(AttributeError, match=f"has no attribute '{slip}'"):
        getattr(mf, slip)([1.0])


def test_importing_takes_along_what_jax_needs_and_no_more() -> None:
    """Catches a file format, a plot or the terminal imported by all who only transform."""
    found = "import sys, meshfft; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    heavy = {"h5py", "matplotlib", "nibabel", "pandas", "rich", "scipy", "tensorstore", "typer", "xarray", "zarr"}
    assert not heavy & {*done.stdout.split()}
