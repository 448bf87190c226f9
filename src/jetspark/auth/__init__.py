"""Who the client is: options, creds files and nkeys turned into the fields of CONNECT.

Nothing here talks to a server; the connection layer asks for the fields before every CONNECT.
"""

from .authenticator import Authenticator, CredsOption, SecretOption, SeedOption
from .creds import Creds, load_creds, parse_creds, parse_seed

__all__ = [
    "Authenticator",
    "Creds",
    "CredsOption",
    "SecretOption",
    "SeedOption",
    "load_creds",
    "parse_creds",
    "parse_seed",
]
