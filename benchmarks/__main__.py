"""`python -m benchmarks`: every command of this package."""

from importlib import import_module
from typing import Any

import typer

from meshfft.extras import installed

COMMANDS = {
    "fft": "Transforms of one array, or at random points: meshfft on each mesh, and every baseline.",
    "scaling": "Transforms on more and more devices: seconds, the ideal line, efficiency.",
    "paper": "The paper's evaluation, modelled.",
    "bounds": "Errors over the bounds that plans print, by tier, method, line and length.",
    "clusters": "Plans over nodes and slices, modelled: stages, wires, order of the devices.",
    "compile": "Seconds of CPU that compiling takes.",
    "dense_tables": "Phases, inverses and times of one dense dimension.",
    "first_on_tpu": "A TPU: values and seconds of every FFT kernel, beside XLA's FFT.",
    "inverse": "The inverse at nonuniform points: direct and by conjugate gradients.",
    "kernels": "FFT kernels of a TPU by their compiled schedules, beside XLA's FFT.",
    "long_convolution": "A causal convolution over a sharded sequence, beside jnp.fft by XLA.",
    "nodes": "Four virtual nodes under Slurm: two stages and the outer wire, beside the plan and mpi4py-fft.",
    "overhead": "What an eager call costs over its compiled program.",
    "passes": "Several GPUs: passes over memory between cuFFT and the all-to-alls.",
    "plans": "What plans print beside the compiler: bytes at the peak, and modelled seconds.",
    "programs": "Alone, inside jit and in a scan, beside mpi4py-fft.",
    "regret": "How much faster the best of ten walks is than the one that is planned.",
    "scattered": "Transforms at scattered points beside finufft.",
    "scattered_scaling": "One radial image on 2 to 64 TPU cores, modelled.",
    "tables": "Every table and number of README.md and docs/, remade.",
    "tolerance": "Errors over tol at drawn sets of scattered points, by type and tolerance.",
    "wire_kernels": "Kernels of a TPU that write and read what wires carry, by their compiled schedules.",
    "wires": "What less on the wire saves between two processes, and costs in accuracy.",
}
PLACES = {  # modules and functions that are not `benchmarks.NAME:main`
    **{name: f"measure.commands:{name}" for name in ("fft", "scaling")},
    "tables": "tables.marks:main",
    "paper": "paper.command:paper",
    **{name: f"tpu.{name}:main" for name in ("first_on_tpu", "kernels", "wire_kernels")},
}
COMPILED = ("kernels", "wire_kernels")  # by libtpu, which needs no TPU
BESIDE = {"dense_tables": "finufft", "programs": "mpi4py-fft", "scattered": "finufft"}  # baselines, where installed
PLAIN: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
app = typer.Typer(help=__doc__, no_args_is_help=True, **PLAIN)


def _check(name: str) -> None:
    """Ends with exit code 2 without a required package; prints which baseline it leaves out."""
    if name in COMPILED and not installed("libtpu"):
        typer.echo(f'{name} needs the TPU compiler, libtpu: in a clone pip install ".[tpu]"', err=True)
        raise typer.Exit(2)
    if name in BESIDE:
        baseline = import_module("benchmarks.measure.baselines").BASELINES[BESIDE[name]]
        if reason := baseline.missing(baseline.what[0]):
            typer.echo(f"absent: {baseline.name}: {reason}", err=True)


def _add(name: str) -> None:
    """Imports a module only when its command is called, because each asks JAX for its own devices."""

    def run(context: typer.Context) -> None:
        _check(name)
        module, _, function = PLACES.get(name, f"{name}:main").partition(":")
        home = import_module(f"benchmarks.{module}")
        command = typer.Typer(**PLAIN)
        text = home.__doc__ if function == "main" else getattr(home, function).__doc__
        command.command(help=_kept(text or ""))(getattr(home, function))
        command(context.args, prog_name=f"python -m benchmarks {name}")

    passed_on = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, help=COMMANDS[name], context_settings=passed_on)(run)


def _kept(text: str) -> str:
    """A docstring whose indented lines `--help` prints as they are."""
    return "\n\n".join("\b\n" + part if "\n    " in "\n" + part else part for part in text.split("\n\n"))


for name in COMMANDS:
    _add(name)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
