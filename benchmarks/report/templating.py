"""Templates: values into markup, every one of them escaped but the drawings, which are markup made here."""

from typing import Any

from meshfft.extras import need

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
