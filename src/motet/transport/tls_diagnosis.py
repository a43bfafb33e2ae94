"""Find out why a TLS connection failed, where the library of the network has only its own text for it."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from motet.core.errors import ConfigError
from motet.transport.addresses import split_address
from motet.transport.link_errors import TlsError, UntrustedServerError

PROBE_TIMEOUT = 5.0  # seconds
_WRONG_NAME_CODES = (62, 64)  # OpenSSL: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_WRONG_TIME_CODES = (9, 10)  # OpenSSL: X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED
_CERTIFICATE_ADVICE = {
    "server": "pass --key and --cert",
    "broker": "Motet sends it a user and a password, so let it accept those (mosquitto: require_certificate false)",
}


@dataclass(frozen=True)
class TlsFiles:
    """PEM files.

    A server needs a key and a certificate. With `authority` the peer's certificate must be signed by it.
    """

    key: Path | None = None
    certificate: Path | None = None
    authority: Path | None = None


def find_tls_error(address: str, tls: TlsFiles | None, peer: str = "server") -> TlsError | None:
    """Connect and say what is wrong with TLS. None: nothing is, or the peer cannot be reached.

    `peer` is what is at the address: the server, or the broker. An UntrustedServerError stays until the settings of this
    side change.
    """
    try:
        context = build_tls_context(tls or TlsFiles())
        context.set_alpn_protocols(["h2"])  # gRPC rejects others
        if tls is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent over this connection
        _shake_hands(address, context)
    except ConfigError as error:
        return UntrustedServerError(str(error))
    except ssl.SSLCertVerificationError as error:
        return _explain_certificate(address, peer, tls, error)
    except ssl.SSLError as error:
        if tls is not None and error.reason == "WRONG_VERSION_NUMBER":
            return UntrustedServerError(
                f"the {peer} at {address} does not use TLS; start it with --key and --cert, or join without --ca."
            )
        return None
    except (OSError, ValueError):
        return None  # it is down or its name is unknown: trying again may help
    if tls is None:
        return UntrustedServerError(
            f"the {peer} at {address} uses TLS; pass the certificate of its authority with --ca."
        )
    return _explain_rejection(address, peer, tls, context)


def build_tls_context(tls: TlsFiles) -> ssl.SSLContext:
    """Return the context of a client with these files. Raise ConfigError if they are no certificates and keys."""
    try:
        context = ssl.create_default_context(cafile=tls.authority)
        # From Python 3.13 on, it rejects certificates of simple authorities ("Missing Authority Key Identifier"), which gRPC
        # accepts. The signature, the name and the dates are checked without it, too.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    except OSError as error:
        raise ConfigError(f"--ca {tls.authority} is not a certificate ({error}); expected a PEM file.") from None
    try:
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key, password="")  # do not ask for one
    except OSError as error:
        raise ConfigError(
            f"--cert {tls.certificate} and --key {tls.key} are not a certificate and its key ({error}); give two PEM files "
            "that belong together."
        ) from None
    return context


def _shake_hands(address: str, context: ssl.SSLContext) -> None:
    host, port = split_address(address)
    with (
        socket.create_connection((host, int(port)), PROBE_TIMEOUT) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        pass


def _explain_certificate(
    address: str, peer: str, tls: TlsFiles | None, error: ssl.SSLCertVerificationError
) -> TlsError:
    host, _ = split_address(address)
    if error.verify_code in _WRONG_TIME_CODES:  # it will be renewed, or this clock will be set
        return TlsError(
            f"the certificate of the {peer} at {address} is not valid now: {error.verify_message}, and this machine's clock "
            f"says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; set the clock, or ask the operator of the {peer} for a new "
            "certificate"
        )
    if error.verify_code in _WRONG_NAME_CODES:
        return UntrustedServerError(
            f"the certificate of the {peer} at {address} is not for the name '{host}'; use a name that is in the "
            "certificate, or add this name to it (motet certificate)."
        )
    authority = None if tls is None else tls.authority
    trust = f"--ca {authority}" if authority else "the authorities of this system"
    return UntrustedServerError(
        f"the certificate of the {peer} at {address} is not valid with {trust} ({error.verify_message}); pass the ca.pem of "
        f"this {peer}'s authority with --ca."
    )


def _explain_rejection(address: str, peer: str, tls: TlsFiles, context: ssl.SSLContext) -> UntrustedServerError | None:
    """Say so if the peer does not accept this side's certificate, or the lack of one.

    It says so within the handshake only before TLS 1.3, and gRPC closes the connection without a word after it.
    """
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        _shake_hands(address, context)
    except ssl.SSLError as error:
        if "PROTOCOL_VERSION" in (error.reason or ""):
            return None
    except (OSError, ValueError):
        return None
    else:
        return None
    if tls.certificate is None:
        return UntrustedServerError(
            f"the {peer} at {address} accepts only clients with a certificate; {_CERTIFICATE_ADVICE[peer]}."
        )
    return UntrustedServerError(
        f"the {peer} at {address} does not accept the certificate {tls.certificate}; give one that its authority has signed "
        "and that has not expired."
    )
