"""Reading responses of a run: its own tokenizer, without transformers and without torch."""

from importlib import resources
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from brorl.group import Decoder
from brorl.rundir import RunDirectory


class TokenIds:
    """Stands in where a run has no tokenizer file: shows token ids as numbers."""

    def decode(self, token_ids: Any, /, *, skip_special_tokens: bool = True) -> str:
        return "".join(f"⟨{int(token)}⟩" for token in token_ids)


def run_decoder(run: RunDirectory) -> Decoder:
    """The tokenizer of the run's newest checkpoint, else of its model; `TokenIds` where there is no tokenizer.json."""
    model = run.recipe().model.path
    checkpoints = sorted(run.checkpoints.glob("step_*"), reverse=True)
    bundled = Path(str(resources.files("brorl") / "models" / model))
    for directory in (*checkpoints, Path(model), bundled):
        file = directory / "tokenizer.json"
        if file.is_file():
            try:
                return Tokenizer.from_file(str(file))
            except Exception:  # the Rust library raises nothing narrower for a damaged file: try the next one
                continue
    return TokenIds()
