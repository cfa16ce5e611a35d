"""Ctrl-C for the tests that send it: a run started in the background ignores it, and so would all that it starts."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
