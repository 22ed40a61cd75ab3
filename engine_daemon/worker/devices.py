"""`python -P -m engine_daemon.worker.devices`: what torch sees, as one line of JSON.

For `doctor`, whose process imports no torch.
"""

import json
import sys
import warnings


def main() -> int:
    """Print `torch` (version), `threads`, `cuda` (a list of devices) and `why` there are none."""
    import torch  # its failure is this process's, told by the traceback's last line

    why, devices = "", []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            for index in range(torch.cuda.device_count()):
                free, total = torch.cuda.mem_get_info(index)
                name = torch.cuda.get_device_name(index)
                devices.append({"index": index, "name": name, "free": free, "total": total})
        elif torch.version.cuda is not None:
            lines = [str(one.message).splitlines()[0] for one in told]
            why = lines[0] if lines else "it finds no driver"
    found = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    sys.stdout.write(json.dumps({**found, "cuda": devices, "why": why}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
