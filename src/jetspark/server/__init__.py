"""Runs a real nats-server: for development, for tests, and as the embedded default.

```python
from jetspark.server import run_cluster, run_server

with run_server() as server:                   # a JetStream server on a free port
    print(server.url)                          # nats://127.0.0.1:41234

async with run_server(user="ann", password="secret", store_dir="data") as server:
    await server.arestart()                    # same port, same data

with run_cluster(3) as cluster:                # three nodes, ready for replicated streams
    cluster.kill(0)
    cluster.restart(0)
```

A server ends with its owner: when the context is left, when the object is dropped, when the
interpreter exits, and also when the process that started it is killed. POSIX systems only.

This package stands alone. It does not import the client, so that it can serve the tests of it.
"""

from jetspark.server.binary import find_server
from jetspark.server.cluster import NatsCluster, run_cluster
from jetspark.server.config import ServerOptions, TLSConfig
from jetspark.server.runner import NatsServer, run_server

__all__ = [
    "NatsCluster",
    "NatsServer",
    "ServerOptions",
    "TLSConfig",
    "find_server",
    "run_cluster",
    "run_server",
]
