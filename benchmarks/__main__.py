"""`python -m benchmarks`: every command of this package."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from meshfft.extras import installed

ALONE: tuple[str, ...] = ("bounds", "clusters", "compile", "dense_tables", "guard", "inverse", "long_convolution")
ALONE += ("nodes", "passes", "plans", "programs", "regret", "scattered", "scattered_scaling", "tolerance", "wires")
COMMANDS = {  # a module, and a function of it
    "fft": "measure.commands:fft",
    "paper": "paper.command:paper",
    "tables": "tables.marks:main",
    **{name: f"{name}:main" for name in ALONE},
    **{name: f"tpu.{name}:main" for name in ("first_on_tpu", "kernels", "wire_kernels")},
}
TPU = (("libtpu",), 'the TPU compiler, libtpu: in a clone pip install ".[tpu]"')
CUDA = (("jax_cuda12_plugin", "jax_cuda13_plugin"), "XLA's compiler for CUDA: benchmarks/README.md, Several GPUs")
COMPILED = {"kernels": TPU, "wire_kernels": TPU, "passes": CUDA}  # compilers, which need no device
BESIDE = {"dense_tables": "finufft", "programs": "mpi4py_fft", "scattered": "finufft"}  # baselines, where installed
PLAIN: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
app = typer.Typer(help=__doc__, no_args_is_help=True, **PLAIN)


def _check(name: str) -> None:
    """Ends with exit code 2 without a required package; prints which baseline it leaves out."""
    packages, remedy = COMPILED.get(name, ((), ""))
    if packages and not any(map(installed, packages)):
        typer.echo(f"{name} needs {remedy}", err=True)
        raise typer.Exit(2)
    if name in BESIDE and not installed(package := BESIDE[name]):
        typer.echo(f"absent: {package} is not installed: pip install {package}", err=True)


def _add(name: str, place: str) -> None:
    """Imports a module only when its command is called, because each asks JAX for its own devices."""
    module, _, function = place.partition(":")
    paragraphs = _docstring(module, function).split("\n\n")

    def run(context: typer.Context) -> None:
        _check(name)
        command = typer.Typer(**PLAIN)
        # `--help` prints indented lines as they are
        text = "\n\n".join("\b\n" + part if "\n    " in "\n" + part else part for part in paragraphs)
        command.command(help=text)(getattr(import_module(f"benchmarks.{module}"), function))
        command(context.args, prog_name=f"python -m benchmarks {name}")

    passed_on = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, help=paragraphs[0], context_settings=passed_on)(run)


def _docstring(module: str, function: str) -> str:
    """The docstring of a function, or of its module if the function is `main`."""
    body = ast.parse((Path(__file__).parent / f"{module.replace('.', '/')}.py").read_text())
    named = {one.name: one for one in body.body if isinstance(one, ast.FunctionDef)}
    return ast.get_docstring(body if function == "main" else named[function]) or ""


for command in COMMANDS.items():
    _add(*command)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
