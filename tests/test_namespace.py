"""The names of `import meshfft as mf`: what people find, call and look up."""

import inspect
import pydoc
from importlib import metadata

import pytest

import meshfft as mf


def test_every_public_name_is_one_to_use() -> None:
    """Catches a module, or a helper, among the names that `dir`, tab and `import *` offer."""
    offered = [name for name in dir(mf) if not name.startswith("_")]
    assert offered == sorted(mf.__all__) and {"fftn", "plan", "Plan", "Points", "kdftn", "scipy_backend"} <= {*offered}
    for name in offered:
        value = getattr(mf, name)
        assert not inspect.ismodule(value) and (callable(value) or name in ("array_api", "scipy_backend")), name
        assert (getattr(value, "__doc__", None) or "").strip(), f"{name} has no docstring"


def test_every_name_imported_for_users_is_offered() -> None:
    """Catches a public function that `__all__` forgets: one imported under its own name."""
    lines = inspect.getsource(mf).splitlines()
    named = {line.split(" as ")[1] for line in lines if line.startswith("from .") and " as " in line}
    assert named - {"__version__"} == {*mf.__all__}


def test_help_shows_the_functions() -> None:
    """Catches `help(meshfft)` as a list of modules alone."""
    shown = pydoc.plain(pydoc.render_doc(mf))
    assert "fftn(" in shown and "class Plan" in shown and metadata.version("meshfft") in shown


def test_the_version_is_the_installed_one() -> None:
    """Catches a version kept in two places."""
    assert mf.__version__ == metadata.version("meshfft")


@pytest.mark.parametrize("slip", ["kdft", "solve", "inverse"])
def test_no_module_has_the_name_of_a_call(slip: str) -> None:
    """Catches `'module' object is not callable` where somebody means kdftn, ikdftn or plan.inverse."""
    with pytest.raises(AttributeError, match=f"has no attribute '{slip}'"):
        getattr(mf, slip)([1.0])
