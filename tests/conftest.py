"""For all tests: Ctrl-C arrives where they send it, and a slow machine fails none of them."""

import signal

from hypothesis import settings

# a run that was started in the background ignores it, and so would all that it starts
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
