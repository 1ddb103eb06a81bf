"""Runs a program in a network where names have public addresses: that of a server here, and one of a local network.

Usage: unshare --net --mount python3 public_hosts.py LOG PROGRAM NAME ARGUMENT ...

The server writes a line into LOG for each connection on which it gets anything: the first header, or `tls`. It answers
`hello`.
"""

import socket
import subprocess
import sys
import tempfile
import threading

PUBLIC = "1.2.3.4"
NAMES = f"127.0.0.1 localhost\n{PUBLIC} a.team.test b.team.test\n10.1.1.1 internal.team.test\n127.0.0.1 rebound.team.test\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def serve(listener, log):
    while True:
        client, _ = listener.accept()
        with client:
            data = client.recv(4096)
            if not data:
                continue
            word = "tls" if data[:1] == b"\x16" else data.decode("ascii", "replace").split("\r\n")[1:2]
            log.write(f"{word}\n")
            log.flush()
            try:
                client.sendall(ANSWER)
            except OSError:
                pass


def main(log, program, name, *arguments):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in [PUBLIC, "10.1.1.1"]:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts, open(log, "a") as lines:
        hosts.write(NAMES)
        hosts.flush()
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)
        for port in [80, 443, 22]:
            listener = socket.create_server(("0.0.0.0", port))
            threading.Thread(target=serve, args=(listener, lines), daemon=True).start()
        return subprocess.run([name, *arguments], executable=program).returncode


sys.exit(main(*sys.argv[1:]))
