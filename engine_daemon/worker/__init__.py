"""The worker process: the only place where torch is imported."""
