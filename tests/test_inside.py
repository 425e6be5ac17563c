"""What docs/inside.md says of the compilation cache."""

import subprocess
import sys
from pathlib import Path

import pytest

KEPT = """
import sys, jax, numpy as np
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event.rpartition("/")[2]))
import meshfft as mf
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",))
x = jax.device_put(np.ones((8, 6), np.float32), NamedSharding(mesh, P("x")))
mf.fftn(x), mf.poisson(x), mf.kdftn(x, [mf.Points.turns(np.arange(8) / 9.0), None])
mf.plan((8, 6), mesh=mesh, spec=P("x"), kind="rfft")(x), jax.jit(lambda x: mf.ifftn(mf.fftn(x) * 2))(x)
print(seen.count("cache_hits"), seen.count("cache_misses"))
"""


@pytest.mark.slow
def test_compiled_programs_are_kept(tmp_path: Path) -> None:
    """Catches programs whose keys change from process to process, so that the persistent cache never has them."""
    command = [sys.executable, "-c", KEPT, str(tmp_path)]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in "ab")
    assert first[0] == "0" and int(first[1]) >= 5
    assert second == [first[1], "0"]
