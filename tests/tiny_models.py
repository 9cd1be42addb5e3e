"""Tiny random models of four architectures, for tests that must hold on any Hugging Face causal LM."""

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")


def tiny_model(
    architecture: str,
    *,
    vocab_size: int = 48,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    spread: float = 2.0,
    width: int = 32,
) -> PreTrainedModel:
    """A random two- or three-layer model whose next-token distributions are far from uniform.

    `spread` is the standard deviation of the logits, so that tests see likely and unlikely tokens. Four heads share
    the width; kernels for GPUs want 16 a head.
    """
    shape = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        match architecture:
            case "llama":
                model = LlamaForCausalLM(LlamaConfig(**shape, num_hidden_layers=2, tie_word_embeddings=False))
            case "qwen2":
                model = Qwen2ForCausalLM(Qwen2Config(**shape, num_hidden_layers=2, tie_word_embeddings=True))
            case "qwen3":
                model = Qwen3ForCausalLM(
                    Qwen3Config(**shape, num_hidden_layers=2, head_dim=width // 4, tie_word_embeddings=False)
                )
            case "gemma3":
                # Three layers, two of them sliding with a window shorter than the test sequences.
                model = Gemma3ForCausalLM(
                    Gemma3TextConfig(
                        **shape,
                        num_hidden_layers=3,
                        head_dim=width // 4,
                        sliding_window=5,
                        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                    )
                )
            case _:
                raise ValueError(f"no tiny model for {architecture!r}; there are {ARCHITECTURES}")
        with torch.no_grad():
            probe = torch.randint(3, vocab_size, (4, 16))
            scale = spread / model(probe).logits.std()
            gain = model.get_parameter("model.norm.weight")
            gain.copy_((1 + gain) * scale - 1 if architecture == "gemma3" else gain * scale)
    return model.to(dtype).eval()  # type: ignore[arg-type]
