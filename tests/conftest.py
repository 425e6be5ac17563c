"""Eight virtual CPU devices for every test, programs compiled with little effort, and 64-bit types by name."""

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import jax

os.environ["MESHFFT_CACHE"] = "off"  # no test reads or writes the user's cache
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_dtype_promotion", "strict")  # as in JAX's own tests: no implicit promotion
jax.config.update("jax_numpy_rank_promotion", "raise")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
from jax.experimental.compilation_cache import compilation_cache  # noqa: E402

# Compiling takes most of a test's time, and without optimization a quarter of that. Redistribution, partitioning and
# fusion still run, so collectives, memory and values (to rounding) are those of users.
LITTLE_EFFORT = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
# XLA ends a process if its devices do not all join a collective within 40 s, and busy cores can take longer.
PATIENCE = ["--xla_cpu_collective_call_terminate_timeout_seconds=300"] * (jax.__version_info__ < (0, 11))
if jax.__version_info__ < (0, 11, 1):  # later versions do not know this flag, and abort
    LITTLE_EFFORT.append("--xla_cpu_use_fusion_emitters=false")

QUICK_EXAMPLES, EXAMPLES = 3, 8  # of a property, by default and with the slow tests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="0/1", help="i/n: every n-th of the selected tests, from the i-th on")


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Selects the tests of --part. CI, whose time is limited, derives the part from the commit."""
    first, every = map(int, config.getoption("--part").split("/"))
    config.hook.pytest_deselected(items=[item for n, item in enumerate(items) if n % every != first])
    items[:] = items[first::every]


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the default tests with little effort. Slow tests compile as users do, except those of `_effort`."""
    quick = config.option.markexpr == "not slow"
    flags = LITTLE_EFFORT if quick else []
    os.environ["XLA_FLAGS"] = " ".join((os.environ.get("XLA_FLAGS", ""), *PATIENCE, *flags))
    examples = int(os.environ.get("MESHFFT_EXAMPLES", QUICK_EXAMPLES if quick else EXAMPLES))
    hypothesis.settings.register_profile("meshfft", deadline=None, max_examples=examples, print_blob=True)
    hypothesis.settings.load_profile("meshfft")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Marks as slow what is marked `more`, and rows other than those that `quick` numbers."""
    made = yield
    for number, item in enumerate(made if isinstance(made, list) else ()):
        quick = item.get_closest_marker("quick")
        assert quick is None or max(quick.args) < len(made), f"{item.nodeid}: quick rows {quick}, but {len(made)} rows"
        if quick and number not in quick.args:
            item.add_marker("more")
        if item.get_closest_marker("more"):
            item.add_marker("slow")
    return made


def pytest_collection_finish() -> None:
    """Collects garbage less often: by default the collector spends a tenth of the time on JAX's traces."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.fixture(autouse=True)
def _devices() -> None:
    """Raises an error if there are too few devices, because sharded tests would be vacuous."""
    assert len(jax.devices()) == 8, (
        "tests need 8 CPU devices: the backend started before conftest.py could ask for them"
    )


@pytest.fixture(autouse=True)
def _effort(request: pytest.FixtureRequest) -> None:
    """Compiles rows marked `more`, and properties, with little effort; test_optimised.py tests optimized programs."""
    marks = {mark.name for mark in request.node.iter_markers()}
    chosen = request.config.option.markexpr not in ("", "not slow") and "optimised" not in marks
    jax.config.update("jax_disable_most_optimizations", chosen and bool(marks & {"more", "hypothesis"}))


@pytest.fixture(autouse=True)
def _no_kept_programs() -> Iterator[None]:
    """Resets JAX's cache of programs; without this, JAX writes to the first folder and warns if it is gone."""
    yield
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private folder, a terminal of 80 columns, and JAX's precision restored afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    before = jax.config.read("jax_enable_x64")
    yield tmp_path
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit types for one test."""
    with jax.enable_x64(True):
        yield
