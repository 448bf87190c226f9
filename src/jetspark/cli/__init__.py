"""The command line: one file a command; `main` puts them together. Nothing imports this package.

The top of each file imports only what `--help` needs, so that help, completion and usage errors
come at once; Spark and the client are imported by the commands that use them.
"""
