"""Attacks on programs of the user that obey a socket. The test starts each of them for itself, or leaves it out."""

import contextlib
import json
import os
import socket
import struct
import subprocess

from base import Skip, attack, must, must_come, must_run, program, removed_later, token

TOPIC = "services"


def place_of(world, name, what):
    place = world.victim.get(name)
    if place is None:
        raise Skip(f"no {what}")
    return place


@contextlib.contextmanager
def connected(path):
    """Connects to a program, and returns its answers as a stream: they may come in parts."""
    with socket.socket(socket.AF_UNIX) as to:
        to.settimeout(20)
        to.connect(path)
        with to.makefile("rb") as answers:
            yield to, answers


@attack(TOPIC)
def ssh_agent(world):
    """Asks the agent for its identities: an attacker would have it sign next."""
    with connected(place_of(world, "ssh_agent", "ssh-agent")) as (agent, answers):
        request_identities = 11
        agent.sendall(struct.pack("!IB", 1, request_identities))
        size = struct.unpack("!I", answers.read(4))[0]
        must(b"canary" in answers.read(size), "not-the-content")


@attack(TOPIC)
def gpg_agent(world):
    with connected(place_of(world, "gpg_agent", "gpg-agent")) as (agent, answers):
        must(answers.readline().startswith(b"OK"))
        agent.sendall(b"GETINFO pid\n")
        must(answers.readline().startswith(b"D "))


@attack(TOPIC)
def tmux_send_keys(world):
    """Types a command into a shell of the user."""
    place, typed = place_of(world, "tmux", "tmux"), world.in_workspace(token())
    must_run([program("tmux"), "-S", place, "send-keys", f"touch {typed}", "Enter"])
    must_come(lambda: os.path.exists(typed))
    with removed_later(typed):
        pass


def hello():
    """Returns the first message of a client of the bus, by the D-Bus specification."""
    bus = b"org.freedesktop.DBus"
    fields = b""
    for code, kind, text in ((1, b"o", b"/org/freedesktop/DBus"), (6, b"s", bus), (2, b"s", bus), (3, b"s", b"Hello")):
        fields += bytes(-len(fields) % 8)
        fields += bytes([code, 1]) + kind + b"\0" + struct.pack("<I", len(text)) + text + b"\0"
    call = b"l\1\0\1" + struct.pack("<III", 0, 1, len(fields)) + fields
    return call + bytes(-len(call) % 8)


@attack(TOPIC)
def session_bus(world):
    """Becomes a client of the bus of the user's session, which may call its services."""
    with connected(place_of(world, "bus", "dbus-daemon")) as (bus, answers):
        user = str(os.geteuid()).encode().hex()
        bus.sendall(f"\0AUTH EXTERNAL {user}\r\n".encode())
        must(answers.readline().startswith(b"OK "))
        bus.sendall(b"BEGIN\r\n" + hello())
        method_return = 2
        must(answers.read(2)[1:] == bytes([method_return]))


def has_got(world, kind, text):
    return any(line.startswith(f"{kind} ") and text in line for line in world.received())


@attack(TOPIC)
def systemd_run(world):
    """Has the real client ask the service manager of the user for a service. The victim stands for the manager."""
    text = token()
    words = [program("systemd-run"), "--user", "--quiet", "--unit", text, "touch", world.in_workspace(text)]
    client = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "XDG_RUNTIME_DIR": world.outside},
    )
    try:
        must_come(lambda: has_got(world, "systemd", text) or client.poll() is not None)
        must(has_got(world, "systemd", text))
    finally:
        client.kill()
        client.wait()


@attack(TOPIC)
def docker_socket(world):
    """Asks the daemon for a container with the whole machine in it. The victim stands for the daemon."""
    text = token()
    body = json.dumps({"Image": text, "HostConfig": {"Binds": ["/:/machine"], "Privileged": True}})
    head = f"POST /containers/create HTTP/1.1\r\nHost: docker\r\nContent-Length: {len(body)}\r\n\r\n"
    with connected(world.victim["docker"]) as (daemon, answers):
        daemon.sendall((head + body).encode())
        must(b" 201 " in answers.readline())
    must_come(lambda: has_got(world, "docker", text))


@attack(TOPIC)
def display_server(world):
    """Becomes a client of the X server, which may type and read in every window. The victim stands for the server."""
    text = token().encode()
    with connected(world.victim["display"]) as (server, answers):
        server.sendall(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))
        must(answers.read(8)[:1] == b"\1")
        # InternAtom: a name that everybody sees.
        padded = text + bytes(-len(text) % 4)
        server.sendall(struct.pack("<BBHHxx", 16, 0, 2 + len(padded) // 4, len(text)) + padded)
        must_come(lambda: has_got(world, "display", text.decode()))
