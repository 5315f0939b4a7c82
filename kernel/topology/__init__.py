"""A whole system: as a file, as data, as a drawing, and running.

Start with ``plan.py``, then ``parts.py`` and ``system.py``.
"""
