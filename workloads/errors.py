"""The one error that a user reads: what is wrong with a scenario, a trace or an option, in one line."""


class InputError(ValueError):
    """Wrong input. Its text is one clear line; the command line prints it and exits with code 2."""
