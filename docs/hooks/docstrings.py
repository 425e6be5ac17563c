"""Docstrings as pages show them: their formulas drawn, their examples as sessions.

A docstring is written for `help` in a terminal; an indented formula is text there, and so is an example behind >>>.
"""

import importlib
import inspect
import operator
import re
from typing import Any

import griffe
from formulas import is_formula, latex_of, mathml


class Docstrings(griffe.Extension):
    """Rewrites the docstrings in the reference."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)

    def on_function_instance(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Spells out `**how`, as `help` does."""
        if "how" in func.parameters and func.parameters["how"].kind is griffe.ParameterKind.var_keyword:
            module = importlib.import_module(func.module.path)
            within = func.path.removeprefix(func.module.path + ".")  # a method's name follows its class's
            shown = inspect.signature(operator.attrgetter(within)(module)).parameters.values()
            known = {one.name: one.annotation for one in func.parameters}
            func.parameters = griffe.Parameters(*(_parameter(one, known) for one in shown))


def _parameter(one: inspect.Parameter, known: dict[str, Any]) -> griffe.Parameter:
    kind = getattr(griffe.ParameterKind, one.kind.name.lower())
    default = None if one.default is inspect.Parameter.empty else repr(one.default)
    return griffe.Parameter(one.name, annotation=known.get(one.name), kind=kind, default=default)


def rewritten(text: str) -> str:
    """A docstring whose indented formulas are MathML, and whose examples are in fences."""
    blocks = re.split(r"\n{2,}", text)
    return "\n\n".join(map(_block, blocks))


def _block(block: str) -> str:
    lines = block.split("\n")
    if lines[0] == "Attributes:":  # griffe reads a word after a space as a type
        return re.sub(r"^    \w+(, \w+)+:", lambda names: names[0].replace(", ", ",\u00a0"), block, flags=re.MULTILINE)
    if lines[0].startswith(">>>"):
        return "```pycon\n" + block + "\n```"
    if all(line.startswith("    ") for line in lines) and is_formula(block):
        return (
            '<div class="formula">' + "".join(mathml(latex_of(line.strip()), block=True) for line in lines) + "</div>"
        )
    return block
