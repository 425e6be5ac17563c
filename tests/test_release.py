"""Release metadata: the supported range agrees with the workflows and the README."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from meshfft.extras import need

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TESTS = (ROOT / ".github/workflows/tests.yml").read_text()


def _bounds() -> dict[str, str]:
    """Oldest promised version of everything that meshfft, its files and its plots need."""
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *extras["files"], *extras["plots"]]
    return dict(one.split(">=") for one in needed)


def _pythons() -> list[str]:
    return [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]


def _pins() -> dict[str, str]:
    lines = (ROOT / "tests/oldest.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def _padded(version: str) -> tuple[int, ...]:
    return (*map(int, version.split(".")), 0, 0, 0)[:3]


def test_the_oldest_versions_are_the_ones_tested() -> None:
    """Catches a lower bound that no test has run with: pyproject.toml moved and tests/oldest.txt did not."""
    pins = _pins()
    assert pins.pop("jaxlib") == pins["jax"]
    assert {name: _padded(pin) for name, pin in pins.items()} == {n: _padded(v) for n, v in _bounds().items()}
    assert "constraint: tests/oldest.txt" in TESTS


def test_every_python_that_is_promised_is_tested() -> None:
    """Catches a Python among the classifiers that the workflow does not run, or the other way round."""
    assert f"python: {json.dumps(_pythons())}" in TESTS
    assert PROJECT["requires-python"] == f">={_pythons()[0]}"


def test_the_readme_tells_the_range() -> None:
    """Catches a README that promises another range than the package has."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"Python {_pythons()[0]} to {_pythons()[-1]}, JAX {_bounds()['jax']} or later" in readme


def test_the_source_distribution_has_its_site_and_tests() -> None:
    """Catches a tarball whose README lacks its picture, whose pages cannot be built and whose tests cannot run."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    needed = {"src", "tests", "benchmarks", "examples", "docs", "mkdocs.yml", ".github", "CHANGELOG.md", "LICENSE"}
    assert needed <= {*tool["include"]} and all((ROOT / one).exists() for one in tool["include"])


PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md"), ROOT / "benchmarks/README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_install_from_a_clone(page: Path) -> None:
    """Catches `pip install "meshfft[cuda12]"` on a page: no index has the package; and an extra that is misspelt."""
    for line in re.findall(r"pip install ([^`&#\n]*)", page.read_text()):
        words = shlex.split(line)
        assert not any(word.startswith("meshfft") for word in words), line
        for extras in re.findall(r"^\.\[(.*)\]$", "\n".join(words), re.MULTILINE):
            assert {*extras.split(",")} <= {*PROJECT["optional-dependencies"]}, line


def test_a_package_in_no_extra_is_named() -> None:
    """Catches a lookup that fails in place of the missing import."""
    with pytest.raises(ImportError, match=r"reading X needs no_such_package .*: install no_such_package"):
        need("no_such_package", "reading X")
