"""From a name and arguments in a recipe to a function: the function's own signature is the schema."""

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from brorl.config import Ref
from brorl.errors import RecipeError


def resolve(ref: Ref, table: Mapping[str, Callable[..., Any]], where: str) -> Callable[..., Any]:
    """The named function with its arguments bound.

    Names without a colon are looked up in `table`; ``package.module:function`` is imported.

    Raises:
        RecipeError: an unknown name (with the nearest), a module that cannot be imported, or arguments that the
            function does not take; `where` is the recipe key to name.
    """
    function = _imported(ref.name, where) if ":" in ref.name else _listed(ref.name, table, where)
    return partial(function, **checked_arguments(function, ref.args, f"{where} {ref.name!r}")) if ref.args else function


def checked_arguments(function: Callable[..., Any], args: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Arguments that a function (or dataclass) takes by keyword, numbers written like ``1e-4`` read as numbers.

    Raises:
        RecipeError: an argument that it does not take; the message lists those it does.
    """
    parameters = inspect.signature(function).parameters
    known = [name for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for name in args:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise RecipeError(f"{where} has no argument {name!r}; {takes}")
    return {name: _number(value, parameters[name].default) for name, value in args.items()}


def _number(value: Any, default: Any) -> Any:
    """YAML reads ``1e-4`` as text; where the default is a number, text that is one becomes one."""
    if isinstance(value, str) and isinstance(default, float):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _listed(name: str, table: Mapping[str, Callable[..., Any]], where: str) -> Callable[..., Any]:
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, list(table), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(table)}"
    raise RecipeError(f"{where}: unknown name {name!r}; {hint} (your own is package.module:function)")


def _imported(name: str, where: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise RecipeError(f"{where}: cannot import {module!r} ({error})") from error
    if attribute not in vars(found):
        raise RecipeError(f"{where}: module {module!r} has no {attribute!r}")
    return vars(found)[attribute]
