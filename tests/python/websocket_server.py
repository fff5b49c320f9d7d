"""WebSocket (RFC 6455) as the side that is connected to: whole messages, after the handshake."""

import asyncio
import base64
import hashlib
import struct

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept(key):
    """The answer to a client's Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()


class WebSocket:
    def __init__(self, reader, send):
        self.reader, self.send_bytes = reader, send

    async def messages(self):
        """The client's messages until it closes or goes."""
        message = b""
        try:
            while True:
                first, length = await self.reader.readexactly(2)
                assert length & 0x80, "a client masks what it sends"
                payload = await self.read_payload(length & 0x7F)
                kind = first & 0x0F
                if kind == CLOSE:
                    return
                if kind == PING:
                    await self.send(PONG, payload)
                if kind not in (TEXT, BINARY, CONTINUED):
                    continue
                message += payload
                if first & 0x80:
                    yield message
                    message = b""
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def read_payload(self, length):
        if length == 126:
            length = struct.unpack(">H", await self.reader.readexactly(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", await self.reader.readexactly(8))[0]
        mask = await self.reader.readexactly(4)
        masked = await self.reader.readexactly(length)
        # As two long numbers, since byte by byte takes a second for each megabyte.
        whole = (mask * (length // 4 + 1))[:length]
        plain = int.from_bytes(masked, "big") ^ int.from_bytes(whole, "big")
        return plain.to_bytes(length, "big")

    async def send(self, kind, payload):
        length = len(payload)
        if length < 126:
            head = struct.pack(">BB", 0x80 | kind, length)
        elif length < 1 << 16:
            head = struct.pack(">BBH", 0x80 | kind, 126, length)
        else:
            head = struct.pack(">BBQ", 0x80 | kind, 127, length)
        await self.send_bytes(head + payload)

    async def message(self, payload):
        await self.send(BINARY, payload)

    async def close(self):
        await self.send(CLOSE, struct.pack(">H", 1000))
