"""Run by vLLM's own Python: so many steps for each line on stdin, their milliseconds as JSON.

Imports nothing of this project.
"""

import json
import os
import sys
import time

PROMPT = [59, 23385, 37491, 27781, 359, 13831, 411, 260]
LONGEST = 256


def main() -> None:
    """Serve stdin until it ends."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    # Lines of the library's own must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from vllm import EngineArgs, LLMEngine, SamplingParams  # type: ignore[import-not-found]

    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=sys.argv[1],
            dtype="bfloat16",
            max_model_len=2048,
            max_num_seqs=1,
            enforce_eager=True,
            disable_log_stats=True,
        )
    )
    wanted = SamplingParams(max_tokens=LONGEST, temperature=0, logprobs=20, ignore_eos=True)
    print("ready", file=answers, flush=True)
    requests = 0
    for line in sys.stdin:
        times: list[float] = []
        while len(times) < int(line):
            if not engine.has_unfinished_requests():
                requests += 1
                engine.add_request(str(requests), {"prompt_token_ids": PROMPT}, wanted)
                engine.step()  # reads the prompt
            begin = time.perf_counter()
            engine.step()
            times.append((time.perf_counter() - begin) * 1000)
        print(json.dumps(times), file=answers, flush=True)


if __name__ == "__main__":
    main()
