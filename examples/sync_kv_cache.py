"""A cache whose entries expire, without asyncio (a server of 2.11 or newer)."""

import jetspark.sync
from jetspark.errors import KeyExistsError, KeyNotFoundError
from jetspark.server import run_server


class Cache:
    """Keeps what is expensive to compute, for all processes and threads that use the bucket."""

    def __init__(self, bucket: jetspark.sync.KeyValue[int]) -> None:
        self.bucket = bucket
        self.misses = 0

    def square(self, number: int, ttl: float | None = None) -> int:
        key = f"square.{number}"
        try:
            return self.bucket.get(key).value
        except KeyNotFoundError:  # never there, or expired
            self.misses += 1
        result = number * number
        try:
            self.bucket.create(key, result, ttl=ttl)
        except KeyExistsError:
            pass  # somebody else was faster, with the same result
        return result


def main() -> None:
    with run_server() as server, jetspark.sync.connect(server.url) as nc:
        js = nc.jetstream()
        # Everything lives for a minute. The marker TTL allows other TTLs for single keys.
        bucket = js.create_key_value(
            bucket="CACHE", ttl=60, limit_marker_ttl=1, codec=jetspark.JSONCodec(int)
        )
        cache = Cache(bucket)

        print(cache.square(12), cache.square(12), "misses:", cache.misses)
        print(cache.square(7, ttl=1), "lives for a second, misses:", cache.misses)
        print("cached:", list(bucket.keys()))

        # Wait until it has expired; watchers are told by a marker.
        with bucket.watch("square.7", updates_only=True) as watcher:
            for entry in watcher:
                if entry is not None:
                    print(entry.key, "is gone:", entry.operation)
                    break
        print("cached:", list(bucket.keys()))
        print(cache.square(7), "misses:", cache.misses)


main()
