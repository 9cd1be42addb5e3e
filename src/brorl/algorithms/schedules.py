"""What changes with steps: the learning rate, also with samples per step, and when the reference is reset."""

from math import cos, pi, sqrt


def broadened(lr: float, samples_per_step: int, base_samples: int | None) -> float:
    """lr * sqrt(samples per step / base samples), the BroRL rule; the ratio is in samples, not in N.

    8,192 -> 65,536 samples gives a factor sqrt(8) = 2.83. `base_samples` None leaves lr as it is. Source: BroRL 4.1,
    after Krizhevsky 2014.
    """
    return lr if base_samples is None else lr * sqrt(samples_per_step / base_samples)


def constant(step: int, steps: int) -> float:
    """Factor 1 at every step."""
    return 1.0


def cosine(step: int, steps: int) -> float:
    """Factor from 1 at step 0 down to 0 after the last step."""
    return 0.5 * (1.0 + cos(pi * min(step, steps) / steps)) if steps else 1.0


SCHEDULES = {"constant": constant, "cosine": cosine}


def learning_rate(step: int, *, lr: float, steps: int, warmup_steps: int, schedule: str) -> float:
    """The learning rate of one step (0-based): linear warm-up from lr / warmup_steps, then the schedule."""
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    return lr * SCHEDULES[schedule](step - warmup_steps, steps - warmup_steps)


def reset_reason(step: int, kl: float | None, *, every: int | None, on_kl: float | None) -> str | None:
    """Why the reference policy becomes the current one after `step` steps: "schedule", "kl", or None.

    Args:
        kl: mean KL to the reference over the step's tokens; None without an update.
        every: steps between resets (200 to 500 in ProRL v2).
        on_kl: a step whose KL is above it is a spike.
    """
    if every is not None and step % every == 0:
        return "schedule"
    return "kl" if on_kl is not None and kl is not None and kl > on_kl else None
