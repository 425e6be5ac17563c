"""The command line as tests run it, in a terminal of 80 columns."""

import os
from typing import Any

from typer.testing import CliRunner

from meshfft.cli.app import app


def call(*words: str) -> Any:
    """Runs a command that has to succeed; returns what it printed."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "--json" in words or all(len(line) <= 80 for line in result.stdout.splitlines()), result.stdout
    return result.stdout


def refused(*words: str) -> str:
    """Runs a command that has to refuse in one line on stderr; returns the line."""
    before = sorted(os.listdir())
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("meshfft: error: ") and result.stderr.count("\n") == 1, result.stderr
    assert "Traceback" not in result.output
    assert sorted(os.listdir()) == before
    return result.stderr
