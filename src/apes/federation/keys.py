"""Keys and certificates for a trial; on several hosts every party makes its own."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apes.errors import ParameterError
from apes.storage.files import write_bytes

LIFE = datetime.timedelta(days=365)
"""How long certificates hold."""
_AUTHORITY = "APES federation"
_NODE_BEGINS = "ecdsa-sha2-nistp384 "
_OTHER_USES = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")


def write_secret(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read; it appears whole."""
    write_bytes(path, data, 0o600)


class Authority:
    """A certificate authority of its own for one federation."""

    def __init__(
        self,
        key: ec.EllipticCurvePrivateKey | None = None,
        certificate: x509.Certificate | None = None,
        life: datetime.timedelta = LIFE,
    ) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        public = self._key.public_key()
        name = x509.SubjectKeyIdentifier.from_public_key(public)
        self._certificate = self._sign(_AUTHORITY, public, name, life=life) if certificate is None else certificate

    def renewed(self, life: datetime.timedelta = LIFE) -> "Authority":
        """The same authority, by its key, with a new certificate."""
        return Authority(self._key, life=life)

    @property
    def ends(self) -> datetime.datetime:
        """When its certificate ends, UTC."""
        return self._certificate.not_valid_after_utc

    def key(self) -> bytes:
        """The authority's private key, PEM: what certificates are renewed with."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def certificate(self) -> bytes:
        """The authority's certificate, PEM: what clients trust."""
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(self, host: str, life: datetime.timedelta = LIFE) -> tuple[bytes, bytes]:
        """Return certificate and private key, PEM, of a server on ``host`` (a name or an address)."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [_alternative(name) for name in dict.fromkeys([host, "localhost", "127.0.0.1"])]
        certificate = self._sign(
            host,
            key.public_key(),
            x509.SubjectAlternativeName(names),
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            life=life,
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return certificate.public_bytes(Encoding.PEM), private

    def _sign(
        self, name: str, key: ec.EllipticCurvePublicKey, *further: x509.ExtensionType, life: datetime.timedelta
    ) -> x509.Certificate:
        now, others = datetime.datetime.now(datetime.UTC), (*_OTHER_USES, "encipher_only", "decipher_only")
        ca = key == self._key.public_key()
        usage = x509.KeyUsage(digital_signature=True, key_cert_sign=ca, crl_sign=ca, **dict.fromkeys(others, False))
        builder = (
            x509.CertificateBuilder()
            .issuer_name(_name(_AUTHORITY))
            .subject_name(_name(name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            # An hour of grace for clocks that are behind.
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
            .add_extension(usage, critical=True)
        )
        for extension in further:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, SHA256())


def node_key() -> tuple[bytes, bytes]:
    """Private key (PEM) and public key (OpenSSH) of a Flower node."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, _in_one_line(key.public_key())


def check_node(line: str) -> None:
    """Raise unless a text is a node's public key exactly as `node_key` writes it: a key has one name, no comment."""
    if not _is_node(line):
        shape = "one line with a key of the curve P-384 in OpenSSH's format and no comment"
        raise ParameterError(f"node must be {shape}, as `apes federation join` makes it, got {line[:40]!r}")


def _is_node(line: str) -> bool:
    try:
        key = load_ssh_public_key(line.encode()) if line.startswith(_NODE_BEGINS) else None
    except (ValueError, UnsupportedAlgorithm):
        return False
    return isinstance(key, ec.EllipticCurvePublicKey) and _in_one_line(key) == line.encode()


def _in_one_line(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
