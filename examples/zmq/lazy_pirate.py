"""Lazy pirate: a client that asks again when its server does not answer.

    python examples/zmq/lazy_pirate.py "what time is it?"

The server is a REP of ØMQ at port 5555 (SERVER_PORT).  The client asks three times, and then gives up.  No new socket is
needed: ``req_relaxed`` lets it ask again, and ``req_correlate`` drops an answer that comes too late.
"""

from __future__ import annotations

import os
import sys

from kernel.sockets import Again, Context

ATTEMPTS, PATIENCE = 3, float(os.environ.get("PATIENCE", "2.5"))


def main(question: str = "hello") -> int:
    with Context() as context, context.socket("REQ", req_relaxed=True, req_correlate=True, linger=0) as req:
        req.connect(f"tcp://127.0.0.1:{os.environ.get('SERVER_PORT', '5555')}")
        for attempt in range(1, ATTEMPTS + 1):
            req.send(question.encode())
            try:
                print(req.recv(timeout=PATIENCE).decode())
            except Again:
                print(f"no answer to attempt {attempt}", flush=True)
            else:
                return 0
    print("the server seems to be gone")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
