"""What the TPU compiler makes of a plan, for a described topology: needs the extra `tpu`, no TPU."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "tpu_planes.py"
ENVIRONMENT = {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}


@pytest.mark.skipif(not importlib.util.find_spec("libtpu"), reason='needs the TPU compiler: pip install ".[tpu]"')
def test_planes_travel_end_to_end() -> None:
    """Catches a complex number packed or unpacked inside a KDFT of planes, and collectives that no plan printed."""
    command = [sys.executable, str(SCRIPT), "v3:2x2"]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for tier, program in json.loads(done.stdout.splitlines()[-1]).items():
        assert program["complex in planes"] == 0, tier
        assert program["complex in packed"] > 0, "the count sees nothing"
        assert program["collectives"] == program["plan"], tier
