"""A real browser for tests of pages: the system's Chromium, driven by playwright; skips where either is missing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def browser() -> Iterator[Any]:
    """A headless browser while the block runs."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def opened(chromium: Any, path: Path, **context: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page on a file, loaded and drawn, without network; and what its console complained of."""
    within = chromium.new_context(offline=True, **context)
    page, complaints = within.new_page(), []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    yield page, complaints
    within.close()
