"""Compile the grammar on stdin, and write its problem to stdout; nothing if it has none.

A second line has the problem again with the name of the grammar that has it, if one of several
does. The argument is the CPU time that both may take, in seconds. The system ends this process
where it takes too much time, memory or stack; a line that was written then still holds.
"""

import resource
import signal
import sys
import threading

from model_host.grammar_engine import check, problem_of_one
from model_host.grammar_process import OUT_OF_MEMORY, THREAD_STACK_BYTES
from replica.limits import GRAMMAR_MEMORY_BYTES_MAX

STACK_BYTES_MAX = THREAD_STACK_BYTES // 2
"""Half of what a thread of the host has: what passes here has room there."""


def _compile(grammar: str, problems: list[str]) -> None:
    problems.append(check(grammar))
    if problems[0]:
        print(problems[0], flush=True)
        if named := problem_of_one(grammar):
            print(named, flush=True)


def main() -> int:
    """Compile one grammar within the limits; return the exit status."""
    resource.setrlimit(resource.RLIMIT_AS, (GRAMMAR_MEMORY_BYTES_MAX, GRAMMAR_MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    grammar = sys.stdin.read()
    # The timer's signal ends the process also inside the engine. Who started it may ignore or
    # block the signal, which is inherited.
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGVTALRM})
    signal.setitimer(signal.ITIMER_VIRTUAL, float(sys.argv[1]))
    threading.stack_size(STACK_BYTES_MAX)
    problems: list[str] = []
    thread = threading.Thread(target=_compile, args=(grammar, problems))
    thread.start()
    thread.join()
    return 0 if problems else OUT_OF_MEMORY


if __name__ == "__main__":
    sys.exit(main())
