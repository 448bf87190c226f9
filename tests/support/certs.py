"""Certificates for TLS tests, made anew in each session."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from jetspark.server import TLSConfig


@dataclass(frozen=True)
class Certs:
    """PEM files: two authorities, and certificates issued by the first of them."""

    ca: Path
    other_ca: Path
    server_cert: Path
    """For localhost, 127.0.0.1 and ::1."""
    server_key: Path
    elsewhere_cert: Path
    """For elsewhere.test alone."""
    elsewhere_key: Path
    client_cert: Path
    client_key: Path
    stranger_cert: Path
    """A client certificate of the other authority."""
    stranger_key: Path

    def tls(self, *, verify: bool = False, handshake_first: bool | str = False) -> TLSConfig:
        """The server's side."""
        return TLSConfig(
            cert=self.server_cert,
            key=self.server_key,
            ca=self.ca if verify else None,
            verify=verify,
            handshake_first=handshake_first,
        )

    def elsewhere_tls(self) -> TLSConfig:
        """The side of a server with a name that it does not have."""
        return TLSConfig(cert=self.elsewhere_cert, key=self.elsewhere_key)

    def context(self) -> ssl.SSLContext:
        """The client's side."""
        return ssl.create_default_context(cafile=str(self.ca))


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    """All certificates of the session."""
    directory = tmp_path_factory.mktemp("certs")
    ca, other_ca = trustme.CA(), trustme.CA()

    def write_ca(name: str, authority: trustme.CA) -> Path:
        path = directory / f"{name}.pem"
        authority.cert_pem.write_to_path(str(path))
        return path

    def issue(name: str, authority: trustme.CA, *identities: str) -> tuple[Path, Path]:
        issued = authority.issue_cert(*identities)
        cert, key = directory / f"{name}.pem", directory / f"{name}.key"
        key.write_bytes(issued.private_key_pem.bytes())
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return cert, key

    server_cert, server_key = issue("server", ca, "localhost", "127.0.0.1", "::1")
    elsewhere_cert, elsewhere_key = issue("elsewhere", ca, "elsewhere.test")
    client_cert, client_key = issue("client", ca, "client@jetspark.test")
    stranger_cert, stranger_key = issue("stranger", other_ca, "stranger@jetspark.test")
    return Certs(
        ca=write_ca("ca", ca),
        other_ca=write_ca("other-ca", other_ca),
        server_cert=server_cert,
        server_key=server_key,
        elsewhere_cert=elsewhere_cert,
        elsewhere_key=elsewhere_key,
        client_cert=client_cert,
        client_key=client_key,
        stranger_cert=stranger_cert,
        stranger_key=stranger_key,
    )
