"""Attacks over sockets: bytes must arrive at the victim, which listens on loopback and on paths."""

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import urllib.parse

import kernel
from base import Skip, attack, must, must_come, token

TOPIC = "network"

MSG_FASTOPEN = 0x20000000
AF_SMC, AF_ALG, AF_VSOCK, AF_PACKET = 43, 38, 40, 17
IPPROTO_MPTCP, IPPROTO_SCTP = 262, 132


def must_arrive(world, kind, send):
    """Sends a text of its own, and waits until the victim has recorded it."""
    text = token()
    send(text.encode())
    must_come(lambda: any(line.startswith(f"{kind} ") and text in line for line in world.received()))


def by_stream(world, kind, sender, address):
    def send(data):
        with contextlib.closing(sender):
            sender.connect(address)
            sender.sendall(data)

    must_arrive(world, kind, send)


def tcp(world):
    return ("127.0.0.1", world.victim["tcp"])


@attack(TOPIC)
def tcp_loopback(world):
    by_stream(world, "tcp", socket.socket(), tcp(world))


@attack(TOPIC)
def tcp_by_proxy(world):
    """Has the proxy of the command connect to a host that is not listed; where there is none, connects by itself."""
    proxy = urllib.parse.urlsplit(os.environ.get("https_proxy") or "")
    with contextlib.closing(socket.socket()) as sender:
        if proxy.port is None:
            sender.connect(tcp(world))
        else:
            sender.connect((proxy.hostname, proxy.port))
            port = world.victim["tcp"]
            sender.sendall(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            must(b" 200 " in sender.recv(4096).split(b"\r\n")[0], "by-the-proxy")
        must_arrive(world, "tcp", sender.sendall)


@attack(TOPIC)
def tcp_fastopen(world):
    with socket.socket() as sender:
        must_arrive(world, "tcp", lambda data: sender.sendto(data, MSG_FASTOPEN, tcp(world)))


@attack(TOPIC)
def mptcp(world):
    sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    by_stream(world, "tcp", sender, tcp(world))


@attack(TOPIC)
def smc_socket(world):
    by_stream(world, "tcp", internet_stream(AF_SMC, 0), tcp(world))


@attack(TOPIC)
def sctp(world):
    """The victim has no SCTP, so the answer of the peer's kernel, a refused connection, shows that bytes went out."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SCTP)
    with contextlib.suppress(ConnectionRefusedError):
        sender.connect(tcp(world))


def internet_stream(family, protocol):
    """Returns a socket of a family that takes internet addresses."""
    fd = kernel.call("socket", family, int(socket.SOCK_STREAM), protocol)
    return RawStream(fd)


class RawStream:
    """A stream socket that is connected by raw internet address."""

    def __init__(self, fd):
        self.fd = fd

    def connect(self, address):
        raw = struct.pack("=H", socket.AF_INET) + struct.pack("!H", address[1]) + socket.inet_aton(address[0]) + bytes(8)
        kernel.checked(kernel.LIBC.connect(self.fd, raw, len(raw)))

    def sendall(self, data):
        os.write(self.fd, data)

    def close(self):
        os.close(self.fd)


@attack(TOPIC)
def udp_send(world):
    send_udp(world, socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def send_udp(world, sender):
    must_arrive_by_udp(world, sender, lambda data: data)


def must_arrive_by_udp(world, sender, packet):
    """Sends by UDP, and waits until it has arrived, or until the kernel says that nobody listens there."""
    text = token()
    has_come = lambda: any(line.startswith("udp ") and text in line for line in world.received())

    def is_decided():
        refusal = sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if refusal:
            raise OSError(refusal, os.strerror(refusal))
        return has_come()

    with sender:
        sender.connect(("127.0.0.1", world.victim["udp"]))
        sender.send(packet(text.encode()))
        must_come(is_decided)


@attack(TOPIC)
def dns_query(world):
    """Carries data in the name of a subdomain, to a name server that the victim stands for."""

    def query(data):
        labels = b"".join(bytes([len(part)]) + part for part in (data, b"example", b"org"))
        return struct.pack("!6H", 1, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)

    must_arrive_by_udp(world, socket.socket(socket.AF_INET, socket.SOCK_DGRAM), query)


def echo_request():
    body = struct.pack("!BBHHH", 8, 0, 0, 1, 1) + b"attack!!"
    total = sum(struct.unpack(f"!{len(body) // 2}H", body))
    total = (total >> 16) + (total & 0xFFFF)
    total += total >> 16
    return body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]


def must_echo(kind):
    with socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP) as sender:
        sender.settimeout(20)
        sender.sendto(echo_request(), ("127.0.0.1", 0))
        # A raw socket gets what others receive, too.
        while b"attack!!" not in sender.recv(2000):
            pass


@attack(TOPIC)
def icmp_dgram(_world):
    must_echo(socket.SOCK_DGRAM)


@attack(TOPIC)
def raw_socket(_world):
    must_echo(socket.SOCK_RAW)


@attack(TOPIC)
def packet_socket(world):
    """Reads what another socket sends over loopback."""
    every_protocol = 3
    with socket.socket(AF_PACKET, socket.SOCK_RAW, socket.htons(every_protocol)) as tap:
        tap.bind(("lo", every_protocol))
        tap.settimeout(20)
        text = token().encode()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(text, ("127.0.0.1", world.victim["udp"]))
        while text not in tap.recv(65536):
            pass


@attack(TOPIC)
def vsock(_world):
    any_address = 0xFFFFFFFF
    with socket.socket(AF_VSOCK, socket.SOCK_STREAM) as listener:
        listener.bind((any_address, any_address))
        listener.listen()


@attack(TOPIC)
def alg_socket(_world):
    with socket.socket(AF_ALG, socket.SOCK_SEQPACKET) as kind:
        kind.bind(("hash", "sha256"))
        operation, _ = kind.accept()
        with operation:
            operation.send(b"")
            must(operation.recv(32).hex().startswith("e3b0c442"))


@attack(TOPIC)
def tcp_listen_any(_world):
    with socket.socket() as listener, socket.socket() as caller:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        caller.connect(("127.0.0.1", listener.getsockname()[1]))
        peer, _ = listener.accept()
        peer.close()


@attack(TOPIC)
def int80_socket(world):
    """Makes the socket through the entry for 32-bit programs, which has other numbers."""
    if kernel.MACHINE != "x86_64":
        raise Skip("only x86_64 has this entry")
    number, inet, datagram = 359, 2, 2
    # push rbx; mov eax, number; mov ebx, inet; mov ecx, datagram; xor edx, edx; int 0x80; pop rbx; ret
    code = b"\x53\xb8" + struct.pack("I", number) + b"\xbb" + struct.pack("I", inet)
    code += b"\xb9" + struct.pack("I", datagram) + b"\x31\xd2\xcd\x80\x5b\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    entry = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    fd = entry()
    if fd < 0:
        raise OSError(-fd, os.strerror(-fd))
    send_udp(world, socket.socket(fileno=fd))


@attack(TOPIC)
def unix_path_socket(world):
    by_stream(world, "unix", socket.socket(socket.AF_UNIX), world.victim["unix"])


@attack(TOPIC)
def unix_path_by_dgram(world):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        must_arrive(world, "dgram", lambda data: sender.sendto(data, world.victim["dgram"]))


@attack(TOPIC)
def unix_abstract(world):
    address = "\0" + world.victim["abstract"]
    by_stream(world, "abstract", socket.socket(socket.AF_UNIX), address)
