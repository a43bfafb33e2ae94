"""Addresses of servers and brokers, as host:port."""

from __future__ import annotations

import ipaddress

from motet.core.errors import ConfigError

MAX_PORT = 65535
PUBLIC_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def split_address(address: str) -> tuple[str, str]:
    """Return host and port. The host of an IPv6 address has no brackets."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def check_peer_address(address: str, peer: str) -> None:
    """Raise an error if a client cannot connect to this address of a peer (the server or the broker)."""
    host, port = split_address(address)
    if not host or not port.isdigit():
        raise ConfigError(
            f"the address of the {peer} is '{address}'; expected its host and port, such as server.example:8800."
        )
    if host in ("0.0.0.0", "::"):
        raise ConfigError(
            f"the address of the {peer} is '{address}', which stands for all addresses of a machine, so nobody can connect "
            f"to it; expected the name or the address of the {peer}, or localhost:{port} if it is on this machine."
        )


def check_bind(address: str) -> None:
    """Reject an address to listen on without a valid port. gRPC would take 99999 for 34463."""
    host, port = split_address(address)
    if not host or not port.isdigit() or int(port) > MAX_PORT:
        raise ConfigError(
            f"the address to listen on is '{address}'; expected host and port up to {MAX_PORT}, such as 127.0.0.1:8890."
        )


def is_loopback(address: str) -> bool:
    """Return True if the address can be reached only from this machine."""
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_tls(address: str, uses_tls: bool, peer: str) -> None:
    """Raise an error if a client would speak plaintext with a peer (the server or the broker) on another machine."""
    check_peer_address(address, peer)
    if not uses_tls and not is_loopback(address):
        raise ConfigError(
            f"the {peer} at {address} is on another machine, and without --ca anyone in between could read and change the "
            f"messages; expected TLS. Pass --ca with the certificate of the authority that signed the {peer}'s "
            f"certificate; for a public one, often {PUBLIC_AUTHORITIES}."
        )
