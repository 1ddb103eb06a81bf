"""Attacks on programs of the user that obey a socket. The test starts each of them for itself, or leaves it out."""

import contextlib
import os
import socket
import struct

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


@attack(TOPIC)
def systemd_run(_world):
    raise Skip("no service manager of the test's own")


@attack(TOPIC)
def docker_socket(_world):
    raise Skip("no docker daemon of the test's own")


@attack(TOPIC)
def display_server(_world):
    raise Skip("no display server of the test's own")
