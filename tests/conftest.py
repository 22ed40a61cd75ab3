"""What all tests share."""

import os

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Test workers share the cores: torch threads that spin for each other would slow a step tenfold.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
