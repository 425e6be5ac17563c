"""The documentation as its readers have it: every block of every page runs, and the site is built without a warning."""

import functools
import html
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PROGRAMS = ("hosts.md",)  # whose blocks are files, run by several processes
PAGES = {path.name: BLOCK.findall(path.read_text()) for path in sorted((ROOT / "docs").glob("*.md"))}


@pytest.mark.quick(4)
@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks and page not in PROGRAMS])
def test_every_block_runs(
    page: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a line of a page that fails, warns, or contradicts its result."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for block in PAGES[page]:
        source = block.replace('jax.config.update("jax_num_cpu_devices", 8)', "")  # too late here; conftest did it
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as readers have them
            exec(compile(source, f"{page}: {block[:60]!r}", "exec"), space)
    assert capfd.readouterr().err == ""


def test_pages_make_the_devices_that_they_use() -> None:
    """Catches a page whose first mesh fails where it is copied into a new program: there JAX has one CPU device."""
    for page, blocks in {"README.md": BLOCK.findall((ROOT / "README.md").read_text()), **PAGES}.items():
        before, mesh, _ = "".join(blocks).partition("jax.make_mesh(")
        assert not mesh or page in PROGRAMS or "jax_num_cpu_devices" in before, page


@pytest.mark.slow
def test_the_program_for_many_hosts_runs_as_one_process_and_as_two(tmp_path: Path) -> None:
    """Catches a program on docs/hosts.md that fails, or whose result depends on the number of processes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "JAX_NUM_CPU_DEVICES": "2", "XLA_FLAGS": ""}
    start = functools.partial(subprocess.Popen, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    volume, program = PAGES["hosts.md"]
    (tmp_path / "power.py").write_text(program)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    power = [sys.executable, "power.py"]
    with start([sys.executable, "-c", volume]) as made:
        assert made.wait() == 0
    with (
        start(power) as alone,
        start([*power, address, "2", "0"]) as first,
        start([*power, address, "2", "1"]) as second,
    ):
        said = [one.communicate(timeout=300)[0].splitlines()[-1:] for one in (alone, first, second)]
    expected, found = (np.array(lines[0].strip("[]").split(), float) for lines in said[:2])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(expected) == 3 and "e-06" not in "".join(said[2])  # only process 0 prints them


def test_every_link_leads_to_a_file() -> None:
    """Catches a link that is broken where the pages are read in the repository, by text or picture."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md"), ROOT / "benchmarks/README.md"]
    for page in pages:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_public_name_is_in_the_reference() -> None:
    """Catches a public name that is missing in the reference or on two pages, and a module without public names."""
    pytest.importorskip("mkdocs")
    listed = "import pages, meshfft; names = [n for g in pages.GROUPS for n in pages.names_of(g)]\n"
    listed += "assert sorted(names) == sorted(meshfft.__all__), {*names} ^ {*meshfft.__all__}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "docs" / "hooks")))}
    subprocess.run([sys.executable, "-c", listed], check=True, env=environment)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Catches a broken link or anchor, a page that the navigation forgets, a docstring that cannot be read,
    formulas that are not drawn, a program that is shown otherwise than it is, and what would be fetched."""
    pytest.importorskip("mkdocs")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "XLA_FLAGS": ""}
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "quickstart.html", "tutorials/index.html", "reference/fourier.html"} <= {*pages}
    words = {page: html.unescape(re.sub("<[^>]*>", "", text)) for page, text in pages.items()}
    assert "<math" in pages["reference/fourier.html"] and "donate=False" in words["reference/fourier.html"]
    for program in (ROOT / "examples").glob("*.py"):
        assert program.read_text().split('"""', 2)[2].strip() in words[f"tutorials/{program.stem}.html"], program
    fetched = re.findall(r'<(?:script|link|img|iframe)[^>]+="(https?://[^"]+)"', "".join(pages.values()))
    assert fetched == []  # the site works offline
