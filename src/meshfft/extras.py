"""What is installed: the version of meshfft; optional packages, imported where they are used."""

import importlib
import importlib.util
from importlib import metadata
from types import ModuleType

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")  # whose versions runs and records name
EXTRAS = {"files": ("nibabel", "h5py", "tensorstore"), "plots": ("matplotlib",), "tpu": ("libtpu",)}


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "not installed"


def all_versions() -> dict[str, str]:
    return {package: version_of(package) for package in PACKAGES}


__version__ = version_of("meshfft")


def need(module: str, purpose: str) -> ModuleType:
    """Imports an optional module; `purpose` is the start of a sentence: "reading NIfTI".

    Raises:
        ImportError: the module is missing or broken; the text names the extra that brings it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = [name for name, modules in EXTRAS.items() if module.split(".")[0] in modules]
        how = install_hint(extra[0]) if extra else f"install {module}"
        raise ImportError(f"{purpose} needs {module} ({error}): {how}") from error


def install_hint(extra: str) -> str:
    """How to install an extra; no package index has meshfft."""
    return f'in a clone of meshfft, pip install ".[{extra}]"'


def installed(module: str) -> bool:
    """Whether the top-level module can be found; it is not imported."""
    return importlib.util.find_spec(module) is not None
