"""Formulas: from the text of docstrings and from LaTeX to MathML, which browsers draw without script or network.

    X[k] = scale sum_n a[n] exp(-2 pi i k n / N)   along every axis

Names of one or two letters are variables, longer ones words, but for functions and Greek letters that are known.
"""

import re

from latex2mathml.converter import convert

FUNCTIONS = ("exp", "cos", "sin", "log", "mod", "vec")
GREEK = ("delta", "nu", "phi", "pi", "psi", "sigma")
SYMBOLS = {name: "\\" + name for name in (*GREEK, "sum")} | {"laplacian": r"\nabla^2", "grad": r"\nabla"}
SYMBOLS |= {"...": r"\ldots", "<=": r"\le", ">=": r"\ge", "~": r"\sim"}
TOKEN = re.compile(
    r"\.\.\.|<=|>=|//|conj\([^()]*\)"
    r"|[A-Za-zé]+(?:_(?:\w+|\([^()]*\)))?(?:\^-?(?:\w+|\([^()]*\)))?"  # a name with a subscript and an exponent
    r"|\d+(?:\.\d+)?|\s{2,}|."
)
PARTS = re.compile(r"([A-Za-zé]+)(?:_(\w+|\([^()]*\)))?(?:\^(-?(?:\w+|\([^()]*\))))?$")


def mathml(latex: str, block: bool) -> str:
    """A formula in LaTeX as MathML."""
    return str(convert(latex, display="block" if block else "inline"))


def latex_of(text: str) -> str:
    """A line of a formula, as docstrings have it, in LaTeX."""
    text = re.sub(r" x (?=V_|M_|\.\.\.)|(?<=\()x(?=: Kronecker)", r" ⊗ ", text)
    if match := re.match(r"(.*)\bsum over (.*?) of\b(.*)", text):
        head, under, rest = map(latex_of, match.groups())
        return rf"{head} \sum_{{{under}}} {rest}"
    return "".join(map(_token, TOKEN.findall(text)))


def is_formula(line: str) -> bool:
    """Whether an indented line of a docstring is mathematics, not a program or a command."""
    program = re.search(r"\bmf\.|\bnp\.|\bjnp\.|`|^\s*(python|meshfft|pip|for|with|from|import) ", line)
    return not program and re.search(r"\w[\]\w)|]* +(=|-?->|<=) ", line) is not None


def _token(token: str) -> str:
    if token.isspace() and len(token) > 1:
        return r"\qquad "
    if token in SYMBOLS:
        return SYMBOLS[token] + " "
    if token.startswith("conj("):
        return rf"\overline{{{latex_of(token[5:-1])}}}"
    if token in "|⊗·" or not token[0].isalpha():
        return {"⊗": r"\otimes ", "%": r"\%", "#": r"\#", "&": r"\&", "$": r"\$", "//": r"\mathbin{/\!/}"}.get(
            token, token
        )
    name, below, above = PARTS.match(token).groups()  # type: ignore[union-attr]
    made = _name(name)
    made += f"_{{{latex_of(below.strip('()'))}}}" if below else ""
    return made + (f"^{{{latex_of(above.strip('()'))}}}" if above else "")


def _name(name: str) -> str:
    if name in SYMBOLS:
        return SYMBOLS[name]
    if name in FUNCTIONS:
        return rf"\operatorname{{{name}}}"
    return name if len(name) < 3 else rf"\text{{ {name} }}"
