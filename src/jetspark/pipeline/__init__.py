"""Data pipelines on Structured Streaming, and the ready jobs: what the commands run."""
