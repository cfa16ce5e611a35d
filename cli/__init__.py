"""The command `tandem`: simulate scenarios, compare with live runs, fit profiles, list policies, print the schema."""

import sys

try:
    from cli.app import app
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)

__all__ = ["app"]
