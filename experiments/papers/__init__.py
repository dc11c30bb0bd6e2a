"""The papers' tables and figures: one module each, discovered by its name.

The module's docstring says what the paper did and what we do. It has ``NEEDS`` ("nothing", "trace"
or "trees"), ``cells(setting)``, ``compute(cell, seed)`` and ``report(frame)``; what they share is
in ``common``.
"""
