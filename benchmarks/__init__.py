"""Rates of jetspark beside its peers and beside a bare socket: `python -m benchmarks NAME`.

One file a benchmark, its name being the NAME; see `benchmarks.harness` for what such a file holds.
A benchmark reports, it never asserts a speed.
"""
