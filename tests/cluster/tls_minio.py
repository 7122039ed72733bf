"""A MinIO that speaks TLS, with a certificate that openssl makes for it."""

import os
import ssl
import subprocess
from pathlib import Path
from urllib.request import urlopen

from compat_server import tool, tools_folder
from free_ports import free_port
from tests.waiting import until

START_S = 30
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
KEYS = {"AWS_ACCESS_KEY_ID": "bmq-test", "AWS_SECRET_ACCESS_KEY": "bmq-test-secret"}


def make_authority(folder: Path) -> Path:
    """The certificate's file of an authority of our own."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate = folder / "ca.crt"
    _openssl(
        "req",
        "-x509",
        *_NEW_KEY,
        "-subj",
        "/CN=bmq test authority",
        "-keyout",
        str(folder / "ca.key"),
        "-out",
        str(certificate),
    )
    return certificate


def make_certificate(authority: Path, folder: Path, *, days: int = 1, address: str = "127.0.0.1") -> Path:
    """Signed by the authority; with its key in `folder`, named as MinIO wants it. Fewer than 0 days: it ended so long
    ago. The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    request, names = folder / "request.pem", folder / "names.cnf"
    names.write_text(f"subjectAltName=IP:{address}\nbasicConstraints=CA:FALSE\n")
    _openssl(
        "req",
        "-new",
        *_NEW_KEY,
        "-subj",
        f"/CN={address}",
        "-keyout",
        str(folder / "private.key"),
        "-out",
        str(request),
    )
    signed_by = [
        "-CA",
        str(authority),
        "-CAkey",
        str(authority.with_suffix(".key")),
        "-CAcreateserial",
        "-extfile",
        str(names),
    ]
    _openssl("x509", "-req", "-in", str(request), *signed_by, "-days", str(days), "-out", str(folder / "public.crt"))
    return folder


class TlsMinio:
    """Serves with the certificate in a folder; keeps its port and its data over restarts."""

    def __init__(self, folder: Path, certificates: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.start(certificates)

    def start(self, certificates: Path) -> None:
        """Until it answers."""
        tool("get", "minio")
        self._folder.mkdir(parents=True, exist_ok=True)
        environment = {
            "MINIO_ROOT_USER": KEYS["AWS_ACCESS_KEY_ID"],
            "MINIO_ROOT_PASSWORD": KEYS["AWS_SECRET_ACCESS_KEY"],
            "MINIO_UPDATE": "off",
        }
        command = [
            str(tools_folder() / "minio"),
            "server",
            str(self._folder / "data"),
            "--address",
            f"127.0.0.1:{self.port}",
            "--quiet",
        ]
        with (self._folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--certs-dir", str(certificates)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment, "MINIO_BROWSER": "off"},
            )
        unchecked = ssl._create_unverified_context()

        def answered() -> bool:
            url = f"https://127.0.0.1:{self.port}/minio/health/ready"
            with urlopen(url, timeout=5, context=unchecked) as answer:
                return answer.status == 200

        until(
            answered,
            "MinIO to be ready",
            START_S,
            not_yet=OSError,
            unless=lambda: self.process is None or self.process.poll() is not None,
            shows=(self._folder / "server.log").read_text,
        )

    def store_url(self, scheme: str = "https", *, ca_file: Path | None = None) -> str:
        return f"s3://bmq-tls/cluster?endpoint={scheme}://127.0.0.1:{self.port}" + (
            f"&ca_file={ca_file}" if ca_file else ""
        )

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
