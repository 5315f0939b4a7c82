"""A plugin for pytest with which tests start their processes by fork, as they did before Python 3.14.

Another process could not import a test of theirs: in the folder ``tests`` that it would find are ours.
"""

from __future__ import annotations

import multiprocessing

multiprocessing.set_start_method("fork")
