"""`models list`: what lies in the cache and loads without network."""

import msgspec

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import tell
from engine_daemon.cli.table import table
from engine_daemon.cli.target import target_of
from engine_daemon.model_store import DEMO_NAME, cached_models
from engine_daemon.sizes import sized


def main(given: Given) -> int:
    """`models list`."""
    target = target_of(given)
    models = cached_models(target.paths.cache)
    if given.json:
        for model in models:
            row = {"name": model.name, "path": str(model.path), "bytes": model.bytes}
            tell(msgspec.json.encode(row).decode())
    elif models:
        rows = [(m.name, sized(m.bytes), str(m.path)) for m in models]
        tell(table(("MODEL", "SIZE", "PATH"), rows))
    else:
        tell(f"no model is cached yet; {DEMO_NAME} is fetched when it is first used")
    return 0
