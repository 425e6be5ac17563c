"""The version of meshfft that is installed."""

from importlib import metadata

try:
    __version__ = metadata.version("meshfft")
except metadata.PackageNotFoundError:  # run from a source tree
    __version__ = "not installed"
