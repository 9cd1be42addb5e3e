"""From a verifier's name to its function: the built-in ones, a user's own, and reward functions in TRL's style."""

import asyncio
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from brorl.errors import RecipeError
from brorl.group import Outcome, Prompt
from brorl.verifiers import PREPARATIONS, VERIFIERS
from brorl.verifiers.score import Score, Verifier


def resolve(name: str) -> Verifier:
    """The verifier of this name: a key of `VERIFIERS`, or ``package.module:function``.

    A function with a parameter called ``completions`` is taken as a reward function in TRL's style; any other is called
    as ``function(prompt, response)`` and returns a `Score`, or a number in [0, 1].

    Raises:
        RecipeError: no such verifier, module or function.
    """
    function = _import(VERIFIERS.get(name, name))
    if name in VERIFIERS:
        return function
    parameters = inspect.signature(function).parameters
    return _from_trl(function, parameters) if "completions" in parameters else _from_ours(function)


def preparation(name: str) -> Callable[[Prompt], None] | None:
    """What a worker runs once per prompt before the first deadline starts; None for most verifiers."""
    return _import(PREPARATIONS[name]) if name in PREPARATIONS else None


def _import(target: str) -> Callable[..., Any]:
    module_name, _, function_name = target.partition(":")
    if not function_name:
        known = ", ".join(sorted(VERIFIERS))
        raise RecipeError(f"no verifier is called {target!r}; known: {known}; your own: 'package.module:function'")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise RecipeError(f"verifier {target!r}: cannot import {module_name}: {reason}") from error
    function = vars(module).get(function_name)
    if not callable(function):
        raise RecipeError(f"verifier {target!r}: module {module_name} has no function {function_name!r}")
    return function


def from_reward(value: Any) -> Score:
    """A `Score` from a bare reward: at least 1 is correct, above 0 partial, else wrong; None and NaN are unscorable."""
    if value is None or math.isnan(float(value)):
        return Score(outcome=Outcome.UNSCORABLE, reward=math.nan, note="the reward function gave no reward")
    reward = float(value)
    outcome = Outcome.CORRECT if reward >= 1 else Outcome.PARTIAL if reward > 0 else Outcome.WRONG
    return Score(outcome=outcome, reward=reward)


def _from_ours(function: Callable[..., Any]) -> Verifier:
    def verify(prompt: Prompt, response: str) -> Score:
        result = function(prompt, response)
        return result if isinstance(result, Score) else from_reward(result)

    return verify


def _from_trl(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> Verifier:
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())

    def verify(prompt: Prompt, response: str) -> Score:
        columns = _trl_columns(prompt, response)
        chosen = {key: value for key, value in columns.items() if takes_any or key in parameters}
        rewards = function(**chosen)
        if inspect.isawaitable(rewards):
            rewards = asyncio.run(_await(rewards))
        found = list(rewards)
        if len(found) != 1:
            raise ValueError(f"{len(found)} rewards for one completion")
        return from_reward(found[0])

    return verify


async def _await(awaitable: Any) -> Any:
    return await awaitable


def _trl_columns(prompt: Prompt, response: str) -> dict[str, list[Any]]:
    """A batch of one: every data column as a list. Rows of messages get conversational completions, as in TRL."""
    columns = {str(key): [value] for key, value in prompt.meta.items()}
    columns.setdefault("answer", [prompt.answer])
    messages = prompt.meta.get("messages", prompt.meta.get("prompt"))
    if isinstance(messages, list):
        columns["prompts"] = [messages]
        columns["completions"] = [[{"role": "assistant", "content": response}]]
    else:
        columns["prompts"] = [prompt.text]
        columns["completions"] = [response]
    return columns
