# SPDX-License-Identifier: Apache-2.0
"""Standard output and error of a worker, whose lines the driver prints as "(name pid=12) text".

The daemon knows the name or the class of an actor. Where lines are to have another name, that of the function that
runs, or what the actor's __repr__() returns, a label in the output says so. Only the first line after a change has one.
"""
import io
import sys

_LABEL = "\x1b]tandem-label;%s\x07"
_NAME_CHARACTERS = 63


class _Output(io.TextIOWrapper):
    """A text stream that writes a label in front of the first text after the name has changed."""
    wanted = ""  # Name for the lines of both streams; "" is the name that the daemon knows.

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._written = ""  # The name in the last label.

    def write(self, text):
        if self._written != _Output.wanted and text:
            self._written = _Output.wanted
            super().write(_LABEL % self._written)
        return super().write(text)


def install():
    """Make sys.stdout and sys.stderr write labels, and each line at once, because the daemon reads line by line."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        encoding, errors = stream.encoding, stream.errors
        output = _Output(stream.detach(), encoding=encoding, errors=errors, line_buffering=True)
        setattr(sys, name, output)
        setattr(sys, f"__{name}__", output)


def set_name(name):
    """Print the next lines of this process as "(name pid=12) text"."""
    _Output.wanted = "".join(character for character in name if character.isprintable())[:_NAME_CHARACTERS]
