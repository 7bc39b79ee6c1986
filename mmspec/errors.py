"""The errors that mmspec raises on purpose: one base class, so that a caller can catch them all.

Deep code raises the fact; the public function that was called adds which file, model or option
it was about. A message says what was given, what was expected and what to do next.
"""


class MMSpecError(Exception):
    """Base class of every error that mmspec raises on purpose."""


class InputError(MMSpecError):
    """An input (file, array, text) that can't be used as it is."""


class OptionError(MMSpecError):
    """An option or a combination of options that can't work."""


class ModelError(MMSpecError):
    """A model that can't be loaded, isn't supported, or doesn't fit its partner."""


class StateError(MMSpecError):
    """Decoder state used in a way that would corrupt it (a rollback too far, a frozen write)."""


class StaleHandleError(StateError):
    """A handle to decoder state was used after the state had moved on or was closed."""


class DraftError(MMSpecError):
    """A drafter that raised or proposed what can't be a proposal."""
