"""A cache whose entries expire: all after a while, some sooner (a server of 2.11 or newer)."""

import asyncio

import jetspark
from jetspark.errors import KeyExistsError, KeyNotFoundError
from jetspark.server import run_server


class Cache:
    """Keeps what is expensive to compute, for all processes that use the bucket."""

    def __init__(self, bucket: jetspark.KeyValue[int]) -> None:
        self.bucket = bucket
        self.misses = 0

    async def square(self, number: int, ttl: float | None = None) -> int:
        key = f"square.{number}"
        try:
            return (await self.bucket.get(key)).value
        except KeyNotFoundError:  # never there, or expired
            self.misses += 1
        result = number * number
        try:
            await self.bucket.create(key, result, ttl=ttl)
        except KeyExistsError:
            pass  # somebody else was faster, with the same result
        return result


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        # Everything lives for a minute. The marker TTL allows other TTLs for single keys.
        bucket = await js.create_key_value(
            bucket="CACHE", ttl=60, limit_marker_ttl=1, codec=jetspark.JSONCodec(int)
        )
        cache = Cache(bucket)

        print(await cache.square(12), await cache.square(12), "misses:", cache.misses)
        print(await cache.square(7, ttl=1), "lives for a second, misses:", cache.misses)
        print("cached:", [key async for key in bucket.keys("square.*")])

        # Wait until it has expired; watchers are told by a marker.
        async with bucket.watch("square.7", updates_only=True) as watcher:
            async for entry in watcher:
                if entry is not None:
                    print(entry.key, "is gone:", entry.operation)
                    break
        print("cached:", [key async for key in bucket.keys("square.*")])
        print(await cache.square(7), "misses:", cache.misses)


asyncio.run(main())
