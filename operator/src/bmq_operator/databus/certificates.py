"""The webhook's certificate and the CA that signs it: what is in their Secret, and what is to be there next. Pure, but
for the keys, which are drawn.

Who asks trusts the newest CA before anything signed by it is shown: a CA is made, told, and signs after that alone. Old
CAs are told until they end. Times are the API server's, so that replicas whose clocks differ do not undo each other's.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_BUNDLE: Final = "ca.crt"
"""All CAs that may have signed what is shown, the newest one first."""
CA_KEY: Final = "ca.key"
"""The newest one's."""
CHAIN: Final = "tls.crt"
KEY: Final = "tls.key"
CA_LASTS: Final = datetime.timedelta(days=3650)
CA_RENEWED_BEFORE: Final = datetime.timedelta(days=365)
LASTS: Final = datetime.timedelta(days=90)
RENEWED_BEFORE: Final = datetime.timedelta(days=30)
SKEW: Final = datetime.timedelta(days=1)
"""By so much clocks may be behind."""
BUNDLE_MAX: Final = 4
_NAME: Final = "bmq-operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What of a Secret can be used. `own`: the certificate that is shown, with its key; None: there is none."""

    cas: tuple[x509.Certificate, ...]
    ca_key: ec.EllipticCurvePrivateKey
    own: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None


def next_data(found: Mapping[str, bytes], *, host: str, told: bytes, now_ms: int) -> dict[str, bytes] | None:
    """What the Secret is to have instead of what was found; None: it is right as it is. `told`: the bundle that those
    who ask trust now. `host`: the Service's name, SERVICE.NAMESPACE.svc.
    """
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    kept = _kept(found)
    if kept is None:
        key = _new_key()
        return _data((_new_ca(key, now),), key, host=host, now=now)
    newest = kept.cas[0]
    if not newest.not_valid_before_utc <= now <= newest.not_valid_after_utc - CA_RENEWED_BEFORE:
        if _can_be_newer(kept, told, now):
            # Nothing else can be signed until the new CA is told, which may take its time.
            return _data(kept.cas, kept.ca_key, host=host, now=now)
        key = _new_key()
        cas = (_new_ca(key, now), *(one for one in kept.cas if one.not_valid_after_utc > now))[:BUNDLE_MAX]
        if kept.own is None or kept.own[0].not_valid_after_utc <= now:
            return _data(cas, key, host=host, now=now)  # nothing is shown that anybody trusts
        return {**found, CA_BUNDLE: _pems(cas), CA_KEY: _key_pem(key)}
    if kept.own is not None and _is_good(kept.own[0], kept.cas, host=host, now=now):
        if kept.own[0].issuer == newest.subject or not _is_in(newest, told):
            return None
    elif kept.own is not None and kept.own[0].not_valid_after_utc > now and not _is_in(newest, told):
        return None
    return _data(kept.cas, kept.ca_key, host=host, now=now)


def ends_ms(data: Mapping[str, bytes]) -> int:
    """When the certificate does. Raises ValueError."""
    return round(x509.load_pem_x509_certificate(data[CHAIN]).not_valid_after_utc.timestamp() * 1000)


def _kept(found: Mapping[str, bytes]) -> _Kept | None:
    """None: nothing can be signed with what is there."""
    try:
        cas = tuple(x509.load_pem_x509_certificates(found[CA_BUNDLE]))
        ca_key = _loaded_key(found[CA_KEY])
    except (KeyError, ValueError, TypeError):
        return None
    if not cas or cas[0].public_key() != ca_key.public_key():
        return None
    try:
        shown, key = x509.load_pem_x509_certificate(found[CHAIN]), _loaded_key(found[KEY])
    except (KeyError, ValueError, TypeError):
        return _Kept(cas=cas, ca_key=ca_key, own=None)
    matches = shown.public_key() == key.public_key()
    return _Kept(cas=cas, ca_key=ca_key, own=(shown, key) if matches else None)


def _is_good(shown: x509.Certificate, cas: tuple[x509.Certificate, ...], *, host: str, now: datetime.datetime) -> bool:
    """Whether it may go on to be shown for as long as it need not be renewed."""
    if not shown.not_valid_before_utc <= now <= shown.not_valid_after_utc - RENEWED_BEFORE:
        return False
    try:
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return host in names.get_values_for_type(x509.DNSName) and any(shown.issuer == one.subject for one in cas)


def _can_be_newer(kept: _Kept, told: bytes, now: datetime.datetime) -> bool:
    """Whether the CA that is told could sign one that lasts much longer than what is shown."""
    newest = kept.cas[0]
    if kept.own is None or kept.own[0].not_valid_after_utc - now >= LASTS - RENEWED_BEFORE:
        return False
    return newest.not_valid_before_utc <= now <= newest.not_valid_after_utc - LASTS and _is_in(newest, told)


def _is_in(ca: x509.Certificate, bundle: bytes) -> bool:
    try:
        return ca in x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return False


def _data(
    cas: tuple[x509.Certificate, ...], ca_key: ec.EllipticCurvePrivateKey, *, host: str, now: datetime.datetime
) -> dict[str, bytes]:
    key = _new_key()
    shown = _signed(cas[0], ca_key, key, host=host, now=now)
    return {CA_BUNDLE: _pems(cas), CA_KEY: _key_pem(ca_key), CHAIN: _pems((shown,)), KEY: _key_pem(key)}


def _new_ca(key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    # A subject of its own, by which those who check find the one that signed.
    serial = x509.random_serial_number()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_NAME} CA {serial:x}"[:64])])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - SKEW)
        .not_valid_after(now + CA_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _signed(
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
    *,
    host: str,
    now: datetime.datetime,
) -> x509.Certificate:
    names = [x509.DNSName(one) for one in (host, f"{host}.cluster.local", host.removesuffix(".svc"))]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LASTS)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _loaded_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("no key on an elliptic curve")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _pems(certificates: tuple[x509.Certificate, ...]) -> bytes:
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)
