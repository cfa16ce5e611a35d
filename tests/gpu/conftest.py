"""Lets the GPU's tests find the random batches of the others."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
