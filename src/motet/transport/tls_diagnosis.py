"""Find out why a TLS connection failed, where the library of the network has only its own text for it."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from motet.transport.addresses import split_address

PROBE_TIMEOUT = 5.0  # seconds
_WRONG_NAME_CODES = (62, 64)  # OpenSSL: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH


class UntrustedServerError(ConnectionError):
    """The server is there, but TLS fails with these settings of the client, however often it tries."""


def explain_tls_failure(server: str, authority: Path | None, uses_tls: bool) -> str | None:
    """Connect once and say what is wrong with the TLS settings. None: nothing is, or the server cannot be reached."""
    if uses_tls and authority is None:
        return None  # the library has authorities of its own
    host, port = split_address(server)
    try:
        with (
            socket.create_connection((host, int(port)), PROBE_TIMEOUT) as connection,
            _build_context(authority).wrap_socket(connection, server_hostname=host),
        ):
            return (
                None
                if uses_tls
                else f"the server at {server} uses TLS; give the certificate of its authority with --ca."
            )
    except ssl.SSLCertVerificationError as error:
        return _explain_certificate(server, host, authority, error)
    except ssl.SSLError as error:
        if uses_tls and error.reason == "WRONG_VERSION_NUMBER":
            return f"the server at {server} does not use TLS; start it with --key and --cert, or join without --ca."
    except (OSError, ValueError):
        pass  # it is down or its name is unknown: trying again may help
    return None


def _build_context(authority: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])  # gRPC rejects others
    if authority is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent over this connection
    else:
        context.load_verify_locations(authority)
    return context


def _explain_certificate(server: str, host: str, authority: Path | None, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _WRONG_NAME_CODES:
        return (
            f"the certificate of the server at {server} is not for the name '{host}'; give a --server name that is in the "
            "certificate, or add this name to it (motet certificate)."
        )
    return (
        f"the certificate of the server at {server} is not valid with --ca {authority} ({error.verify_message}); give the "
        "ca.pem of this server's authority."
    )
