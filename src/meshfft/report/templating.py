"""Templates: values into markup, every one of them escaped but what was made as markup here."""

from typing import Any

from ..extras import need

PURPOSE = "writing a report"


def rendered(template: str, **values: Any) -> str:
    """A template of this package, filled in.

    Raises:
        ImportError: jinja2 is missing.
    """
    jinja = need("jinja2", PURPOSE)
    environment = jinja.Environment(
        loader=jinja.PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return str(environment.get_template(template).render(**values))


def markup(text: str) -> Any:
    """Markup made by this package, which is not to be escaped again."""
    return need("markupsafe", PURPOSE).Markup(text)
