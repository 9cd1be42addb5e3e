"""Errors that are the user's to mend. The command line prints their message and exits non-zero, without a traceback."""


class UserError(Exception):
    """What is wrong, where, and what to do about it, in one message."""


class RecipeError(UserError):
    """A recipe that cannot be run."""


class DataError(UserError):
    """A data file or row that cannot be used; the message names file and line."""


class ModelError(UserError):
    """A model directory or tokenizer that cannot be used."""


class RunError(UserError):
    """A run that cannot go on: nothing to learn from, a full disk, a damaged checkpoint."""
