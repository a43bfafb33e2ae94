"""Certificates of a server: an authority of its own, and a certificate for the host names that clients use."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from motet.core.errors import ConfigError
from motet.core.install_hint import install_command
from motet.transport.private_files import open_private_file

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY, SERVER = "ca", "server"  # <name>.pem and <name>.key
AUTHORITY_DAYS, SERVER_DAYS = 3650, 825
EXPIRES_SOON = timedelta(days=30)
CLOCK_SKEW = timedelta(hours=1)  # the clock of a client may be late


def create_certificates(folder: Path, hosts: Sequence[str], replace: bool = False) -> datetime:
    """Create server.pem and server.key for the hosts, and ca.pem and ca.key if there is no authority yet.

    With `replace`, a certificate that exists is replaced; the authority stays. Return when the certificate expires.
    """
    if not hosts:
        raise ConfigError(
            "a certificate needs a host name; pass the name or address at which clients reach the server."
        )
    _require_cryptography()
    if (folder / f"{SERVER}.pem").exists() and not replace:
        raise ConfigError(
            f"'{folder / SERVER}.pem' exists already. To replace it: motet certificate {folder} {' '.join(hosts)} --rotate"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / f"{AUTHORITY}.key").exists():
        if (folder / f"{AUTHORITY}.pem").exists():
            raise ConfigError(
                f"'{folder}' has {AUTHORITY}.pem but not {AUTHORITY}.key, which signs certificates; put the key back, or "
                "choose another folder."
            )
        _create_authority(folder)
    return _create_server_certificate(folder, hosts)


def read_host_names(certificate: Path) -> list[str]:
    """Return the names and addresses that a server's certificate is for. Empty if it has none or cannot be read."""
    loaded = _load_certificate(certificate)
    if loaded is None:
        return []
    from cryptography import x509

    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return []
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def read_expiry(certificate: Path) -> datetime | None:
    """Return when a certificate expires; None if it cannot be read."""
    loaded = _load_certificate(certificate)
    return None if loaded is None else loaded.not_valid_after_utc


def describe_expiry(certificate: Path, now: datetime | None = None) -> str | None:
    """Return a warning about a certificate that has expired or will soon; None if it is valid for long."""
    expires = read_expiry(certificate)
    left = None if expires is None else expires - (now or datetime.now(UTC))
    if left is None or left > EXPIRES_SOON:
        return None
    when = "has expired, and nobody can connect" if left < timedelta() else f"expires in {left.days} days"
    return (
        f"the certificate {certificate} {when} ({expires:%Y-%m-%d %H:%M} UTC). "
        "Renew it: motet certificate FOLDER HOST --rotate"
    )


def _load_certificate(path: Path) -> x509.Certificate | None:
    try:
        from cryptography import x509
    except ImportError:  # pragma: no cover
        return None  # the network reads the certificate itself
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return None


def _create_authority(folder: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _common_name("Motet authority")
    builder = _start_certificate(name, name, key, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(of_authority=True), critical=True)
    _write_pair(folder, AUTHORITY, key, builder, key)


def _create_server_certificate(folder: Path, hosts: Sequence[str]) -> datetime:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority, authority_key = _load_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
    builder = _start_certificate(_common_name(hosts[0]), authority.subject, key, SERVER_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(of_authority=False), critical=True)
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return _write_pair(folder, SERVER, key, builder, authority_key).not_valid_after_utc


def _start_certificate(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, of_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not of_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=of_authority,
        crl_sign=of_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _write_pair(
    folder: Path,
    name: str,
    key: EllipticCurvePrivateKey,
    builder: x509.CertificateBuilder,
    signer: EllipticCurvePrivateKey,
) -> x509.Certificate:
    """Sign a certificate, and write it and its private key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    # Python 3.13 and newer reject certificates that do not name the key of their authority.
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = builder.add_extension(issuer_key, critical=False).sign(signer, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    with open_private_file(folder / f"{name}.key") as file:
        file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    return certificate


def _load_authority(folder: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key((folder / f"{AUTHORITY}.key").read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate((folder / f"{AUTHORITY}.pem").read_bytes())
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(f"the authority in '{folder}' cannot be read ({error}); expected PEM files.") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ConfigError(
            f"'{folder / AUTHORITY}.key' is not a key of an elliptic curve; use the authority's own tool."
        )
    return certificate, key


def _common_name(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ConfigError(
            f"'{host}' is not a host name; write other characters than ASCII in their xn-- form."
        ) from None


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:  # pragma: no cover
        raise ConfigError(f"certificates need the package cryptography. Run: {install_command('secure')}") from None
