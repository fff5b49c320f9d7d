"""SPDY/3.1 as the side that is connected to: streams that the client opens, each with headers, and bytes both ways.

Only what Kubernetes' clients use: no pushed streams, no settings, no flow control.
"""

import asyncio
import struct
import zlib

SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY = 1, 2, 3, 6, 7
FIN = 1
LONGEST_DATA = 64 * 1024

# What both sides' compressors of headers know from the start: words with their lengths, then text.
WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age "
    "allow authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
).split() + ["200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"]
TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def sized(text):
    return struct.pack(">I", len(text)) + text.encode()


DICTIONARY = b"".join(sized(word) for word in WORDS) + TEXT.encode()
assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2), "this is the dictionary of SPDY/3"


class Stream:
    """What the client opened, with what it has sent on it so far."""

    def __init__(self, session, number, headers):
        self.session, self.number, self.headers = session, number, headers
        self.input = asyncio.StreamReader()

    async def write(self, data):
        for start in range(0, len(data), LONGEST_DATA):
            await self.session.send_data(self.number, 0, data[start : start + LONGEST_DATA])

    async def finish(self):
        """Nothing more comes from this side."""
        await self.session.send_data(self.number, FIN, b"")


class Session:
    """One connection. `opened` is a queue of its streams, and ends with None."""

    def __init__(self, reader, send):
        self.reader, self.send = reader, send
        self.opened = asyncio.Queue()
        self.streams = {}
        self.inflate = zlib.decompressobj(zdict=DICTIONARY)
        self.deflate = zlib.compressobj(zdict=DICTIONARY)

    async def run(self):
        """Reads until the client goes."""
        try:
            while True:
                await self.read_frame()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for stream in self.streams.values():
                stream.input.feed_eof()
            self.opened.put_nowait(None)

    async def read_frame(self):
        first, rest = struct.unpack(">II", await self.reader.readexactly(8))
        flags, length = rest >> 24, rest & 0xFFFFFF
        payload = await self.reader.readexactly(length)
        if first >> 31 == 0:
            self.take_data(first, flags, payload)
            return
        assert first >> 16 == 0x8003, f"not SPDY/3: {first:#x}"
        kind = first & 0xFFFF
        if kind == SYN_STREAM:
            await self.take_stream(flags, payload)
        elif kind == RST_STREAM:
            number = struct.unpack(">I", payload[:4])[0]
            self.take_data(number, FIN, b"")
        elif kind == PING:
            await self.send_control(PING, 0, payload)
        elif kind == GOAWAY:
            raise ConnectionResetError

    def take_data(self, number, flags, data):
        stream = self.streams.get(number)
        if stream is None:
            return
        if data:
            stream.input.feed_data(data)
        if flags & FIN:
            stream.input.feed_eof()
            del self.streams[number]

    async def take_stream(self, flags, payload):
        number = struct.unpack(">I", payload[:4])[0]
        stream = Stream(self, number, self.read_headers(payload[10:]))
        self.streams[number] = stream
        block = self.deflate.compress(struct.pack(">I", 0)) + self.deflate.flush(zlib.Z_SYNC_FLUSH)
        await self.send_control(SYN_REPLY, 0, struct.pack(">I", number) + block)
        if flags & FIN:
            self.take_data(number, FIN, b"")
        self.opened.put_nowait(stream)

    def read_headers(self, block):
        text, headers = self.inflate.decompress(block), {}
        count, at = struct.unpack(">I", text[:4])[0], 4

        def word():
            nonlocal at
            length = struct.unpack(">I", text[at : at + 4])[0]
            at += 4 + length
            return text[at - length : at].decode()

        for _ in range(count):
            name = word()
            headers[name.lower()] = word()
        return headers

    async def send_control(self, kind, flags, payload):
        head = struct.pack(">II", 0x80030000 | kind, flags << 24 | len(payload))
        await self.send(head + payload)

    async def send_data(self, number, flags, data):
        await self.send(struct.pack(">II", number, flags << 24 | len(data)) + data)
