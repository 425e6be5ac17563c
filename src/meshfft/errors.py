"""The one way to refuse a call: a condition, and a line that names the wrong value, the right one and the remedy."""


def check(condition: bool, message: str, error: type[Exception] = ValueError) -> None:
    """Raises `error(message)` unless `condition` holds; called at the public boundary, before any work."""
    if not condition:
        raise error(message)
