"""Certificates of a federation: what each of them is good for."""

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from apes.federation.keys import Authority


def test_only_the_authority_may_sign_certificates():
    """Whoever has a server's key could otherwise make certificates for any other server."""
    authority = Authority()
    own = x509.load_pem_x509_certificate(authority.certificate())
    server = x509.load_pem_x509_certificate(authority.issue("shuffler.example")[0])
    for certificate, may_sign in ((own, True), (server, False)):
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
        assert basic.critical
        assert basic.value.ca is may_sign
        assert usage.key_cert_sign is may_sign
        assert usage.digital_signature
    # The authority signs servers, and no further authorities.
    assert own.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_a_servers_certificate_is_the_authoritys_and_goes_with_its_key():
    authority = Authority()
    certificate, private = authority.issue("shuffler.example")
    server, own = (x509.load_pem_x509_certificate(data) for data in (certificate, authority.certificate()))
    server.verify_directly_issued_by(own)
    key = load_pem_private_key(private, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert server.public_key() == key.public_key()
