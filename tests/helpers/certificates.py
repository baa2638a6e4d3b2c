"""Certificate authorities and what they sign, for tests of TLS."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A key and its certificate; one that `signs` is an authority."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: bytes | None = None) -> str:
        how: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password)
        )
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode()

    @property
    def both(self) -> str:
        return self.pem + self.key_pem()

    def sign(
        self, name: str, *, signs: bool = False, expired: bool = False, only_for: str | None = None
    ) -> Identity:
        return _make(name, self, signs, expired, only_for)

    def sign_address(self, address: str) -> Identity:
        """For a server at an IP address."""
        return _make(address, self, signs=False, expired=False, only_for=None, address=address)


def authority(name: str = "test authority") -> Identity:
    return _make(name, None, signs=True, expired=False, only_for=None)


def self_signed(name: str = "nobody in particular") -> Identity:
    return _make(name, None, signs=False, expired=False, only_for=None)


def _make(
    name: str,
    issuer: Identity | None,
    signs: bool,
    expired: bool,
    only_for: str | None,
    address: str | None = None,
) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.name if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now - DAY if expired else now + DAY)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
    )
    if address is not None:
        alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        builder = builder.add_extension(alternative, critical=False)
    if only_for is not None:
        usage = {
            "server": ExtendedKeyUsageOID.SERVER_AUTH,
            "client": ExtendedKeyUsageOID.CLIENT_AUTH,
        }[only_for]
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
    return Identity(subject, key, builder.sign(issuer.key if issuer else key, hashes.SHA256()))
