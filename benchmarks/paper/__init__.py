"""The paper's evaluation: cases -> rows, each with how it is known -> tables and figures."""
