"""Seeded faults: small wrong changes of the sources, each of which the tests have to notice.

``python -m tests.faults`` puts one fault after the other into a copy of the checkout and runs the tests that have to
fail there, which have to pass without it. A fault that no test notices survives, and the command ends with exit code 1.
"""
