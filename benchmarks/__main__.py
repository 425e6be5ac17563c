"""`python -m benchmarks`: every command of this package."""

import runpy
import sys

import typer

from benchmarks.cli.measure import dense, fft, guard, scaling
from benchmarks.cli.paper import paper
from benchmarks.cli.report import report
from benchmarks.measure.baselines import BASELINES
from meshfft.extras import installed

# Modules with a command line of their own, imported only when asked for: each says to JAX what devices it wants.
SCRIPTS = {
    "awkward": "A length with a large prime against a power of two.",
    "bounds": "Errors over the bounds that plans print, by tier, method, line and length.",
    "choice": "The method that `auto` picks against every other.",
    "compile": "Seconds of CPU that compiling takes.",
    "dense_rate": "The dense 3-D transform against one large matrix product.",
    "dense_tables": "The tables of docs/accuracy.md and docs/dense_measured.md.",
    "first_on_tpu": "A TPU: values and seconds of every FFT kernel, beside XLA's FFT.",
    "float64": "Float64 from products of slices: errors by the number of slices.",
    "gpu": "One GPU: beside cuFFT, in place, and dense products.",
    "kernels": "FFT kernels of a TPU by their compiled schedules, beside XLA's FFT.",
    "inverse": "The inverse at nonuniform points: direct and by conjugate gradients.",
    "out_of_core": "Passes over the disk: memory, seconds, error.",
    "loops": "Eager loops of every public function, in every way that could queue too many programs.",
    "overhead": "What an eager call of a small array costs over its program.",
    "passes": "Several GPUs: passes over memory between cuFFT and the all-to-alls.",
    "programs": "Alone, inside jit and in a scan, beside mpi4py-fft.",
    "parts": "What the steps of a walk take of the cores.",
    "real": "What rfftn, irfftn and dctn save against fftn.",
    "ring": "The modes of a ring: one way, both ways, and in the paper's order.",
    "scattered": "Transforms at scattered points beside finufft.",
    "scattered_scaling": "The same by counts, to 2048 devices.",
    "soak": "Two processes, 800 transforms there and back.",
    "store": "A sharded store against a plain copy.",
    "tolerance": "Errors over tol at drawn sets of scattered points, by type and tolerance.",
    "wire_kernels": "Kernels of a TPU that write and read what wires carry, by their compiled schedules.",
    "wires": "What less on the wire saves between two processes, and costs in accuracy.",
}
COMPILED = ("kernels", "wire_kernels")  # by libtpu, which needs no TPU
BESIDE = {"dense_tables": "finufft", "programs": "mpi4py-fft", "scattered": "finufft"}  # baselines, where installed
app = typer.Typer(
    help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
for command in (fft, dense, scaling, guard, paper, report):
    app.command()(command)


def _check(name: str) -> None:
    """Ends with exit code 2 without what a script needs; says which baseline it leaves out."""
    if name in COMPILED and not installed("libtpu"):
        typer.echo(f'{name} needs the TPU compiler, libtpu: in a clone pip install ".[tpu]"', err=True)
        raise typer.Exit(2)
    if name in BESIDE and (reason := BASELINES[BESIDE[name]].missing(BASELINES[BESIDE[name]].what[0])):
        typer.echo(f"absent: {BESIDE[name]}: {reason}", err=True)


def _script(name: str) -> None:
    def run(context: typer.Context) -> None:
        _check(name)
        sys.argv[1:] = context.args
        runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)

    passed_on = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, help=SCRIPTS[name], context_settings=passed_on)(run)


for name in SCRIPTS:
    _script(name)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
