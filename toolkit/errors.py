"""The two exceptions that a user of the toolkit meets."""


class InputError(ValueError):
    """Bad data: wrong shape, NaN, negative, unnormalised, unknown name, corrupt file."""


class Refused(ValueError):
    """A solver or rule does not take this problem; the message is its reason."""
