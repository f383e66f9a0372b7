"""TLS with a detour: name and certificate are those of the URL's host, wherever the connection goes."""

import shutil
import ssl
import subprocess
from http.server import ThreadingHTTPServer

import pytest
from loopback import Quiet, running

from pipelines.web.requests import FetchFailed, Kind
from schemas.failures import Reason

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
HOST = "pictures.example"


@pytest.fixture
def secure(tmp_path, monkeypatch):
    """(port, certificate, names asked for) of a server that is `pictures.example`."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", f"/CN={HOST}"]
    subprocess.run([*command, "-addext", f"subjectAltName=DNS:{HOST}"], check=True, capture_output=True)
    names = []

    class Handler(Quiet):
        def answer(self) -> None:
            names.append(("host", self.headers["Host"]))
            self.send(200, b"ok")

    class Server(ThreadingHTTPServer):
        def handle_error(self, request, client_address) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda _, name, __: names.append(("tls", name))
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with running(server):
        yield server.server_address[1], certificate, names


def test_names_and_certificate_are_of_the_true_host(secure, client_of) -> None:
    port, certificate, names = secure
    reach = {"allow_hosts": (f"127.0.0.1:{port}",), "ca_bundle": str(certificate), "attempts": 1}
    client = client_of(connect_to=(f"{HOST}=127.0.0.1:{port}", f"other.example=127.0.0.1:{port}"), **reach)
    assert client.body(client.get(f"https://{HOST}/a", source="s", kind=Kind.API)) == b"ok"
    assert names == [("tls", HOST), ("host", HOST)]
    with pytest.raises(FetchFailed, match=f"{Reason.CONNECTION_FAILED}.* certificate"):
        client.get("https://other.example/a", source="s", kind=Kind.API)


def test_an_unknown_authority_is_not_trusted(secure, client_of) -> None:
    port, _, _ = secure
    client = client_of(connect_to=(f"{HOST}=127.0.0.1:{port}",), allow_hosts=(f"127.0.0.1:{port}",), attempts=1)
    with pytest.raises(FetchFailed, match="certificate"):
        client.get(f"https://{HOST}/a", source="s", kind=Kind.API)
