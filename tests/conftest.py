"""Eight virtual CPU devices for every test, programs compiled with little effort, and 64-bit types by name."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

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

hypothesis.settings.register_profile(
    "meshfft", deadline=None, max_examples=int(os.environ.get("MESHFFT_EXAMPLES", "8")), print_blob=True
)
hypothesis.settings.load_profile("meshfft")


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
    flags = LITTLE_EFFORT if config.option.markexpr == "not slow" else []
    os.environ["XLA_FLAGS"] = " ".join((os.environ.get("XLA_FLAGS", ""), *PATIENCE, *flags))


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
    """Compiles slow rows marked `more` with little effort; test_optimised.py tests optimized programs."""
    marks = {mark.name for mark in request.node.iter_markers()}
    little = request.config.option.markexpr == "slow" and "more" in marks and "optimised" not in marks
    jax.config.update("jax_disable_most_optimizations", little)


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
