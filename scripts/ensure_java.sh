#!/bin/sh
# Makes sure that Java 17 or newer is there, which Spark needs: installs Debian's package where
# that is allowed, and otherwise says what to install.
set -u

major() {
    java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

found=$(major)
[ "${found:-0}" -ge 17 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing default-jre-headless, because Spark needs Java 17 or newer"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends default-jre-headless; } >/dev/null || exit 1
    found=$(major)
    [ "${found:-0}" -ge 17 ] && exit 0
fi

echo "Java 17 or newer is needed (found: ${found:-none}); install it, for example OpenJDK 17" >&2
exit 1
