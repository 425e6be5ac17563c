"""Parts: commands, whose rows fill tables and series of the pages.

A part's rows are in results/NAME.jsonl. They are replaced together, when every command has rows of one commit.
"""

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from meshfft.atomic import replacing
from meshfft.extras import installed

from .. import rows as files
from ..rows import ROOT, Values
from . import measured, modelled
from .paper import of_paper
from .text import Named

RESULTS = ROOT / "benchmarks" / "results"
PROGRAM = "dist_fft.py"  # of the paper's authors


class Part(NamedTuple):
    """Commands of `python -m`, tables made of their rows, minutes on two cores if measured, packages they need."""

    name: str
    made: Callable[[Sequence[Values]], Named]
    commands: list[str]
    minutes: int = 0
    needs: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.name}.jsonl"

    @property
    def modelled(self) -> bool:
        return self.minutes == 0 and bool(self.commands)


THEIRS = f"--ring one-way --program {PROGRAM}"
HERE = f"--method cooley-tukey,auto --order natural {THEIRS} --baselines swirl-lm --rounds 15"
CUBES = ("64,64,64 --mesh 2,2,2", "96,96,96 --mesh 2,2,2", "128,128,128 --mesh 2,2,2", "128,128,128 --mesh 1,1,8")
FFT = "fft 256,256,256 --method transpose --order natural,any --rounds 7 --baselines jnp-sharded,jnp,scipy,jaxdecomp"
SENT = [f"--order {order} --wire {wire}" for wire in ("exact", "int24", "int16") for order in ("natural", "any")]
V3, SLICE = "compile 8192,8192,8192 --topology v3:32x32", "compile 2048,2048,2048 --topology v3:8x16 --mesh 4,4,16"
KERNELS = "--topology v5e:2x2,v5p:2x2x1,v3:2x2 --lengths 512,4096 --kinds plane,lane,sublane,first --by kernel,xla"
STEPS = "meshfft.cli.app profile 256,256,256 --mesh 8 --method transpose --figure docs/figures/profile.png"


def _each(command: str, *flags: str) -> list[str]:
    return [f"benchmarks {command} {one}".strip() for one in flags or ("",)]


PROGRAMS = _each("programs --rounds 9 --shape 256,256,256")
LARGE = [f"--mesh {mesh}{memory}" for memory in ("", " --keep") for mesh in ("8", "2,4", "2,2,2")]
PROGRAMS += _each("programs --rounds 4 --turns 3 --shape 512,512,512 --slab", *LARGE)
AUTHORS = _each(f"fft {HERE}", *CUBES, "1024,1024 --mesh 2,4", "16384 --mesh 8")
COMPILED = _each("compile 256,256,256 --topology v3:2x2 --mesh 2,2,2")
COMPILED += _each(f"{V3} --mesh 8,16,16", "--method auto", "--method kdft")
POD = _each(f"{V3} --mesh 2048", *SENT) + _each(SLICE, f"--method cooley-tukey {THEIRS}", "--method auto")
POD += _each("compile --topology v5e:2x2 --mesh 4", "512,512,512", "512,512,512 --engine xla")
POD += _each("compile --topology v5e:2x2 --mesh 4 --order any", "512,512,512", "512,512,512 --engine xla")
PARTS = (
    Part("programs", measured.programs, PROGRAMS, 22, ("mpi4py_fft",)),
    Part("fft", measured.fft, _each(FFT), 6, ("jaxdecomp",)),
    Part("authors", measured.authors, AUTHORS, 12, (PROGRAM,)),
    Part("links", measured.links, _each("wires loopback", "", "--rate 2gbit"), 4),
    Part("nodes", measured.nodes, _each("nodes"), 5, ("mpi4py_fft",)),
    Part("regret", measured.regret, _each("regret"), 20),
    Part("long_convolution", measured.long_convolution, _each("long_convolution --rounds 5"), 4),
    Part("scattered", measured.scattered, _each("scattered"), 6, ("finufft",)),
    Part("dense", measured.dense, _each("dense_tables"), 6, ("finufft",)),
    Part("inverse", measured.inverse, _each("inverse --sizes 1024,8192"), 2),
    Part("profile", measured.profile, [STEPS], 2),
    Part("compile", measured.compiling, COMPILED, 10, ("libtpu",)),
    Part("wires", measured.wires, _each("wires accuracy --sizes 8192,65536"), 12),
    Part("bounds", measured.bounds, _each("bounds"), 30),
    Part("plans", measured.plans, _each("plans --seed 42"), 12),
    Part("tolerance", measured.tolerance, _each("tolerance"), 12),
    Part("gpu", measured.gpu, []),
    Part("paper", of_paper, _each("paper")),
    Part("pod", modelled.pod, POD, needs=("libtpu", PROGRAM)),
    Part("kernels", modelled.cycles, _each(f"kernels {KERNELS}"), needs=("libtpu",)),
    Part("passes", modelled.passes, _each("passes --lengths 512"), needs=("jax_cuda12_plugin",)),
    Part("played", modelled.played, _each("plans --seed 42 --topology v5e:2x2 --draws 40"), needs=("libtpu",)),
    Part("clusters", modelled.clusters, _each("clusters")),
    Part("strong", modelled.strong, _each("scattered_scaling")),
)


def chosen(only: Sequence[str], model: bool) -> list[Part]:
    names = [part.name for part in PARTS]
    if unknown := {*only} - {*names}:
        raise SystemExit(f"no part is called {' '.join(unknown)}: there are {', '.join(names)}")
    return [part for part in PARTS if (part.name in only if only else part.modelled == model)]


def run(part: Part, commit: str) -> None:
    """Runs the commands that have no rows of this commit yet; a stopped part continues where it was."""
    if part.path.exists() and _commands(_rows(part.path, commit)) >= {*part.commands}:
        return
    kept = part.path.with_suffix(".partial")
    done = _rows(kept, commit) if kept.exists() else []
    for command in (one for one in part.commands if one not in _commands(done)):
        print(f"{part.name}: python -m {command}", flush=True)
        done += made(command, commit)
        with replacing(kept, overwrite=True) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in done))
    kept.replace(part.path)


def made(command: str, commit: str) -> list[Values]:
    """The rows of one command, as those of this commit, whose command names no file of rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        subprocess.run([sys.executable, "-m", *shlex.split(command), "--rows", str(path)], cwd=ROOT, check=True)
        facts = {"cpu": files.cpu_model(), "cores": files.cores()}
        rows = [facts | row for row in files.read(path)]
    return [row | {"commit": commit, "command": f"python -m {command}"} for row in rows]


def _rows(path: Path, commit: str) -> list[Values]:
    return [row for row in files.read(path) if row.get("commit") == commit]


def _commands(rows: Sequence[Values]) -> set[str]:
    return {row["command"].removeprefix("python -m ") for row in rows}


def missing(part: Part) -> list[str]:
    return [one for one in part.needs if not (ROOT / one).exists() and not installed(one)]
