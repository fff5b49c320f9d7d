"""Relays connections of a network namespace without a network to one port outside of it.

Usage: firewall.py PORT SOCKET
It runs in the namespace, whose only interface is loopback, which also gets the address 10.99.99.99. It listens on PORT,
and connects each connection to the Unix socket SOCKET. The path of a file leads out of the namespace, and nothing leads
in. It prints `ready`.
"""

import asyncio
import contextlib
import fcntl
import socket
import struct
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8913, 0x8914, 0x8916, 1
# An address that is not one of loopback: clients use no proxy for those.
ADDRESS = "10.99.99.99"


def bring_up_loopback():
    """Does what `ip link set lo up` and `ip address add` do."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
        address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(any_socket, SIOCSIFADDR, address)


async def copy(reader, writer):
    """Copies bytes until their end, which it passes on."""
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()


async def relay(path, inner_reader, inner_writer):
    """Connects one connection to the socket."""
    with contextlib.closing(inner_writer), contextlib.suppress(OSError):
        outer_reader, outer_writer = await asyncio.open_unix_connection(path)
        with contextlib.closing(outer_writer):
            await asyncio.gather(copy(inner_reader, outer_writer), copy(outer_reader, inner_writer))


async def main(port, path):
    """Serves until the process is ended."""
    server = await asyncio.start_server(lambda *ends: relay(path, *ends), "0.0.0.0", port)
    print("ready", flush=True)
    await server.serve_forever()


bring_up_loopback()
asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
