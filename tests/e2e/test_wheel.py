"""The wheel: it builds, holds the bundled model, and works where it is installed, away from the source tree."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tiny_policy import write_recipe

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path, path: Path | None = None) -> str:
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_works_installed_elsewhere(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    [wheel] = tmp_path.glob("brorl-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    model = "brorl/models/brorl-tiny"
    for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"):
        assert f"{model}/{file}" in names
    assert "brorl/py.typed" in names
    assert {f"brorl/reports/page/{file}" for file in ("page.html", "page.css", "tree.js")} <= names
    assert sum(i.file_size for i in zipfile.ZipFile(wheel).infolist() if i.filename.startswith(model)) < 16 * 2**20
    site = tmp_path / "site"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel, cwd=tmp_path)
    where = run(sys.executable, "-c", "import brorl; print(brorl.__file__)", cwd=tmp_path, path=site)
    assert str(site) in where
    recipe = write_recipe(tmp_path, steps=1, model={"path": "brorl-tiny"}, optimizer={"lr": 0.0})
    assert "4 prompts x 24 rollouts" in run(sys.executable, "-m", "brorl", "check", recipe, cwd=tmp_path, path=site)
    run(sys.executable, "-m", "brorl", "train", recipe, "--run", tmp_path / "run", cwd=tmp_path, path=site)
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 1
