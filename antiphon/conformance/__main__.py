"""Answers of this implementation: questions as lines on stdin, answers as lines on stdout."""

import json
import sys

from antiphon.conformance.answers import answer


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps({"number": question["number"], **answer(question)}), flush=True)


if __name__ == "__main__":
    main()
