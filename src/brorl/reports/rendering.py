"""A page as one file: templates with every value escaped, and scripts and data of ours alone that may run."""

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from brorl import __version__
from brorl.reports.untrusted import json_in_html


def rendered(template: str, scripts: Sequence[str], data: Any, **values: Any) -> str:
    """The page.

    Args:
        template, scripts: names of files in `reports/page`.
        data: for the scripts; JSON.
        values: for the template, escaped there.
    """
    script, plotly = "\n".join(map(_asset, scripts)), get_plotlyjs()
    pages = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return pages.get_template(template).render(
        policy=_policy(plotly, script),
        style=_Trusted(_asset("page.css")),
        plotly=_Trusted(plotly),
        script=_Trusted(script),
        data=_Trusted(json_in_html(data)),
        version=__version__,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **values,
    )


class _Trusted(str):
    """Text of ours that the template puts in as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def _asset(name: str) -> str:
    return (resources.files("brorl") / "reports" / "page" / name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    """Nothing is loaded, and only the page's own scripts run: a tag that slipped through would not."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
