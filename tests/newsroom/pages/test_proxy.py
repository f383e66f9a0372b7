"""The pages behind a real nginx: TLS, below a path, `Host` kept, the visitor's name in a header."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import servers
from running_newsroom import Newsroom, Server, decide, searched, served, shown

from newsroom.pages.state import PagesSettings

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
pytestmark = pytest.mark.skipif(
    NGINX is None or shutil.which("openssl") is None, reason="no nginx or openssl here (Debian: apt-get install nginx)"
)
ROOT_PATH = "/newsroom"
TOKEN = "a-token-of-24-characters"
CONFIG = """
pid {folder}/pid; error_log {folder}/error.log; daemon off;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
    location {path}/ {{
      proxy_pass {target}/;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-Proto https;
      proxy_set_header X-Forwarded-User {user};
    }}
  }}
}}
"""


@contextmanager
def proxied(server: Server, folder: Path, user: str) -> Iterator[httpx.Client]:
    """Run nginx before the pages; give a browser that comes to it by a name of the outside."""
    port = servers.free_port()
    files = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=pages", "-days", "1", *files]
    subprocess.run(request, check=True, capture_output=True)
    config = CONFIG.format(folder=folder, port=port, path=ROOT_PATH, target=server.url, user=user)
    (folder / "nginx.conf").write_text(config)
    name = {"Host": f"pages.example.org:{port}"}
    with (
        servers.server([str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf")], port),
        httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=False, headers=name, timeout=120) as client,
    ):
        yield client


def test_a_login_behind_tls_and_below_a_path(plain: PagesSettings, tmp_path: Path) -> None:
    with served(replace(plain, token=TOKEN, root_path=ROOT_PATH)) as server, proxied(server, tmp_path, "-") as client:
        led = client.get(f"{ROOT_PATH}/?n=24", headers={"Accept": "text/html"})
        assert led.status_code == 303
        assert led.headers["location"] == f"{ROOT_PATH}/enter?then=%2Fnewsroom%2F%3Fn%3D24"  # no scheme, no host
        form = {"token": TOKEN, "then": f"{ROOT_PATH}/?n=24"}
        own = f"https://{client.headers['host']}"
        assert client.post(f"{ROOT_PATH}/enter", data=form, headers={"Origin": "https://x.example"}).status_code == 403
        entered = client.post(f"{ROOT_PATH}/enter", data=form, headers={"Origin": own})
        assert entered.status_code == 303 and entered.headers["location"] == form["then"]
        assert "Secure" in entered.headers["set-cookie"] and "SameSite=strict" in entered.headers["set-cookie"]
        page = client.get(form["then"], headers={"Accept": "text/html"})
        assert page.status_code == 200
        for address in re.findall(r'(?:href|src|action|hx-[a-z]+)="(/[^"]*)"', page.text):
            assert address.startswith(f"{ROOT_PATH}/"), address
        for path in ("/static/style.css", "/health", "/decisions", "/datasets", "/links", "/comparison"):
            assert client.get(ROOT_PATH + path).status_code == 200, path


@pytest.mark.slow
def test_an_editor_works_behind_a_proxy_that_names_him(newsroom: Newsroom, tmp_path: Path) -> None:
    settings = newsroom.alone(tmp_path, user_header="X-Forwarded-User", root_path=ROOT_PATH)
    with served(settings) as server, proxied(server, tmp_path, "ada") as client:
        client.follow_redirects = True
        assert httpx.get(server.url).status_code == 401
        client.base_url = f"{client.base_url}{ROOT_PATH}"
        page = searched(client, {"headline": "A heron."})
        images = shown(page.text)
        addresses = re.findall(r'(?:href|src|action|hx-[a-z]+)="(/[^"]*)"', page.text)
        assert len(images) == 12 and all(address.startswith(f"{ROOT_PATH}/") for address in addresses)
        page = decide(client, page, images[0], "choose")
        assert page.status_code == 200 and "by ada" in page.text and "Chosen (1)" in page.text
        picture = next(address for address in addresses if "/pictures/" in address).replace("&amp;", "&")
        assert client.get(picture.removeprefix(ROOT_PATH)).headers["content-type"] == "image/jpeg"
        assert client.get("/decisions").text.count(f'href="{ROOT_PATH}/articles/') == 1
