"""Certificates: renewed under a running shuffler, never half, and their end said in words.

Before, certificates ended after 365 days, nothing renewed them, and all that was said was "not ready" (finding 9).
"""

import json
import ssl
import stat
import subprocess
import sys
import threading
import time
from datetime import timedelta

import numpy as np
import pytest
from cryptography import x509
from parties import APES, HOST, RUN, TOKEN, Shuffler, agreed, apes, task_for_few, until

from apes import Examples
from apes.errors import DataError, ProtocolError
from apes.federation.keys import Authority
from apes.federation.parties import Servers, invite
from apes.federation.renewal import certificate_warnings, renew, write_pair
from apes.federation.shuffler_client import ShufflerClient
from apes.federation.trial.layout import Federation, Layout
from apes.shuffler.service.certificate import follow_files
from apes.storage.certificates import about_end, check_end, last_end
from apes.storage.files import write_bytes
from apes.storage.settings import write_settings

ENDED, SOON = timedelta(seconds=-1), timedelta(days=20)


@pytest.fixture
def org(tmp_path):
    """The folder of who invited, which is a trial's as well."""
    examples = Examples(np.zeros((1, 4), np.float32), np.zeros(1, np.uint8))
    invite(tmp_path / "org", task_for_few(agreed(), examples), Servers((HOST, 1), ("link.example", 2), 1))
    layout = Layout(tmp_path / "org")
    write_settings(layout.settings, Federation(RUN, 1, 1, 3, 1, 2))
    write_bytes(layout.device(1) / "authority.pem", (layout.invitation / "authority.pem").read_bytes())
    return layout


def authority_of(layout):
    """Its certificates, as bytes."""
    return (layout.invitation / "authority.pem").read_bytes()


def handshake(pair, trusted, host):
    """A TLS handshake in memory with who has this pair: the certificate that the client accepts."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair)
    return accepted(server, trusted, host)


def accepted(server, trusted, host):
    """The certificate that a client accepts of a server's context."""
    client = ssl.create_default_context(cadata=trusted.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    inside = client.wrap_bio(to_client, to_server, server_hostname=host)
    outside = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (inside, outside, inside, outside):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return x509.load_der_x509_certificate(inside.getpeercert(binary_form=True))


def test_new_certificates_for_those_who_trust_the_old_authority(org):
    trusted, before = authority_of(org), handshake(org.shuffler / "tls.pem", authority_of(org), HOST)
    renewed = renew(org.folder)
    for server, host in ((org.shuffler, HOST), (org.superlink, "link.example")):
        found = handshake(server / "tls.pem", trusted, host)
        assert found.serial_number != before.serial_number
    assert authority_of(org) == trusted
    assert renewed.shuffler == f"{last_end(org.shuffler / 'tls.pem'):%Y-%m-%d %H:%M}"


def test_secrets_are_their_owners(org):
    for file in (org.folder / "authority.key", org.shuffler / "tls.pem", org.superlink / "tls.pem"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"PRIVATE KEY" in file.read_bytes()
    handed = [org.invitation, org.analyzer]
    assert not [file for folder in handed for file in folder.glob("*.pem") if b"PRIVATE" in file.read_bytes()]


def test_the_authority_is_renewed_with_an_overlap(org):
    old, old_pair = authority_of(org), (org.shuffler / "tls.pem").read_bytes()
    renew(org.folder, authority=True)
    both = authority_of(org)
    assert both.count(b"BEGIN CERTIFICATE") == 2
    places = [org.analyzer, org.superlink, org.device(1)]
    assert {(place / "authority.pem").read_bytes() for place in places} == {both}
    kept = org.folder / "old.pem"
    kept.write_bytes(old_pair)
    # Old and new servers, before those who have the new certificates and those who do not yet.
    for pair in (kept, org.shuffler / "tls.pem"):
        for trusted in (old, both):
            assert handshake(pair, trusted, HOST)


def test_an_authority_that_ended_is_renewed_and_forgotten(org):
    write_bytes(org.invitation / "authority.pem", (ended := _authority(org, ENDED)).certificate())
    with pytest.raises(DataError, match="the authority's certificate ended on"):
        renew(org.folder)
    renew(org.folder, authority=True)
    assert authority_of(org).count(b"BEGIN CERTIFICATE") == 1
    assert handshake(org.shuffler / "tls.pem", authority_of(org), HOST)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(org.shuffler / "tls.pem", ended.certificate(), HOST)


def _authority(layout, life):
    """The federation's authority with a certificate of this life."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return Authority(load_pem_private_key((layout.folder / "authority.key").read_bytes(), None), life=life)


def test_another_authoritys_key_renews_nothing(org):
    before = (org.shuffler / "tls.pem").read_bytes()
    write_bytes(org.folder / "authority.key", Authority().key())
    with pytest.raises(DataError, match="is not the key of"):
        renew(org.folder)
    assert (org.shuffler / "tls.pem").read_bytes() == before


@pytest.mark.process
def test_killed_in_the_middle_there_is_an_old_pair_or_a_new_one(org):
    """Renewed again and again by a process that is killed: at no time does a pair not belong together."""
    trusted, seen, pair = authority_of(org), set(), org.folder / "seen.pem"

    def look():
        pair.write_bytes((org.shuffler / "tls.pem").read_bytes())
        seen.add(handshake(pair, trusted, HOST).serial_number)
        return len(seen)

    loop = (
        "import sys, pathlib; from apes.federation.renewal import renew\nwhile True: renew(pathlib.Path(sys.argv[1]))"
    )
    for times in (1, 2, 3):
        process = subprocess.Popen([sys.executable, "-c", loop, org.folder])
        before = (org.superlink / "tls.pem").read_bytes()
        try:
            until(lambda before=before: (org.superlink / "tls.pem").read_bytes() != before, process)
            until(lambda times=times: look() > 15 * times, process)
        finally:
            process.kill()
            process.wait()
        assert handshake(org.shuffler / "tls.pem", trusted, HOST)
        assert handshake(org.superlink / "tls.pem", trusted, "link.example")
    # Whoever was killed holds no lock.
    assert apes("federation", "renew", org.folder)[0] == 0


def test_the_command_says_until_when(org):
    code, output, _ = apes("federation", "renew", org.folder, "--authority", "--json")
    assert code == 0
    assert json.loads(output)["authority"] == f"{last_end(org.invitation / 'authority.pem'):%Y-%m-%d %H:%M}"
    code, output, _ = apes("federation", "renew", org.folder)
    assert code == 0
    assert "start the SuperLink again" in output


def test_a_month_before_and_after_the_end_it_is_said(org):
    assert certificate_warnings(org) == []
    authority = _authority(org, SOON)
    write_pair(org.shuffler / "tls.pem", authority, HOST, SOON)
    (line,) = certificate_warnings(org)
    end = last_end(org.shuffler / "tls.pem")
    assert line == f"the shuffler's certificate ends on {end:%Y-%m-%d %H:%M} UTC; " + (
        "renew with: apes federation renew FOLDER"
    )
    write_pair(org.superlink / "tls.pem", authority, HOST, ENDED)
    with pytest.raises(DataError, match=r"the SuperLink's certificate ended on .*; renew with: apes federation renew"):
        certificate_warnings(org)
    assert about_end("x", end) is not None
    assert check_end("x", org.analyzer / "authority.pem") is None


def test_up_says_it_at_once(org):
    """It used to wait, and then to say that the shuffler was not ready."""
    write_pair(org.shuffler / "tls.pem", _authority(org, SOON), HOST, ENDED)
    code, _, errors = apes("federation", "up", org.folder)
    assert code == 2
    assert errors.startswith("apes: the shuffler's certificate ended on ")
    assert not org.logs.exists()


def test_who_connects_after_a_renewal_gets_the_new_certificate(tmp_path, capsys):
    """From files that do not belong together, or are gone, nothing is taken; what was served goes on."""
    authority, pair, key = Authority(), tmp_path / "tls.pem", tmp_path / "tls.key"
    serving, served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []

    def serve(life=timedelta(days=90), with_key=True):
        certificate, private = authority.issue(HOST, life)
        write_bytes(pair, certificate)
        if with_key:
            write_bytes(key, private, 0o600)
        return x509.load_pem_x509_certificate(certificate).serial_number

    def now():
        return accepted(serving, authority.certificate(), HOST).serial_number

    served.append(serve())
    serving.load_cert_chain(pair, key)
    follow_files(serving, pair, key)
    assert now() == served[0]
    served.append(serve())
    assert now() == served[1] != served[0]
    serve(with_key=False)
    assert now() == served[1]
    pair.unlink()
    assert now() == served[1]
    served.append(serve(SOON))
    assert now() == served[2]
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {event["event"] for event in events} == {"certificate", "certificate-refused"}
    assert events[-1]["message"].startswith("the shuffler's certificate ends on ")
    serve(ENDED)
    with pytest.raises(DataError, match="the shuffler's certificate ended on"):
        follow_files(serving, pair, key)


@pytest.fixture
def shuffler(small, tmp_path):
    party = Shuffler(tmp_path / "s", small.policy, small.shuffler)
    party.authority = Authority()
    party.trusted = tmp_path / "authority.pem"
    write_bytes(party.trusted, party.authority.certificate())
    party.tls = ssl.create_default_context(cafile=party.trusted)
    party.http = party.client()
    serve(party, timedelta(days=90))
    yield party
    party.http.close()
    if party._process is not None:
        party.kill()


def serve(party, life):
    """Have the files hold a new pair."""
    certificate, key = party.authority.issue(HOST, life)
    write_bytes(party.folder / "tls.pem", certificate)
    write_bytes(party.folder / "tls.key", key, 0o600)


def serial(party):
    """Of the certificate that a new connection gets."""
    with party.connect() as connection:
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True)).serial_number


def in_file(party):
    return x509.load_pem_x509_certificate((party.folder / "tls.pem").read_bytes()).serial_number


@pytest.mark.process
def test_a_running_shuffler_takes_the_new_certificate(shuffler):
    """At the next connection; those that are there stay; a pair that does not belong together changes nothing."""
    shuffler.start()
    first = serial(shuffler)
    assert first == in_file(shuffler)
    with shuffler.connect() as kept:
        serve(shuffler, timedelta(days=365))
        assert serial(shuffler) == in_file(shuffler) != first
        kept.sendall(f"GET /health HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        assert kept.recv(100).startswith(b"HTTP/1.1 200")
    good = in_file(shuffler)
    certificate, _ = shuffler.authority.issue(HOST)
    write_bytes(shuffler.folder / "tls.pem", certificate)
    assert serial(shuffler) == good
    assert [event["kind"] for event in shuffler.events() if event["event"] == "certificate-refused"] == ["SSLError"]
    serve(shuffler, SOON)
    assert serial(shuffler) == in_file(shuffler)
    said = [event["message"] for event in shuffler.events() if event["event"] == "certificate" and event["message"]]
    assert said[-1].startswith("the shuffler's certificate ends on ")


@pytest.mark.process
def test_the_analyzer_hears_in_words_and_goes_on_after_the_renewal(shuffler, capfd):
    """What it asked while the certificate was over is answered when there is a new one: no round is lost."""
    shuffler.start()
    serve(shuffler, ENDED)
    url = f"https://{HOST}:{shuffler.port}"
    with pytest.raises(
        ProtocolError, match=r"does not answer: the shuffler's certificate ended on .*; renew with: apes"
    ):
        ShufflerClient(url, TOKEN, shuffler.trusted, patience=0.05).release(RUN, 1)
    answers = []
    patient = ShufflerClient(url, TOKEN, shuffler.trusted, patience=100)
    asking = threading.Thread(target=lambda: answers.append(patient.release(RUN, 1)))
    asking.start()
    time.sleep(0.5)
    assert not answers
    serve(shuffler, SOON)
    asking.join()
    patient._http.close()
    # Answered: the round is open.
    assert answers == [None]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    said = [line["message"] for line in lines if line["event"] == "certificate"]
    assert any(" ended on " in line for line in said)
    assert any(" ends on " in line for line in said)


def test_an_authority_that_ended_is_said_at_once(tmp_path):
    write_bytes(tmp_path / "authority.pem", Authority(life=ENDED).certificate())
    with pytest.raises(DataError, match="the authority's certificate ended on"):
        ShufflerClient("https://127.0.0.1:1", TOKEN, tmp_path / "authority.pem")


@pytest.mark.process
def test_a_shuffler_with_an_ended_certificate_says_so_and_stops(shuffler):
    serve(shuffler, ENDED)
    command = [APES, "shuffler", shuffler.folder / "shuffler.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "apes: the shuffler's certificate ended on " in done.stderr.splitlines()[-1]
