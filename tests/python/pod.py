"""A cluster with one pod, `default/p`: exec, attach and port-forward over SPDY/3.1 and over WebSockets.

Usage: pod.py CERTIFICATE KEY TOKEN DIRECTORY
It listens on a free port of loopback, and prints it, then a line for each connection that is upgraded. Only requests with the token are answered. A command that is
executed "in the pod" is a process of this machine with DIRECTORY as its working directory; what is attached to is
`cat`, after a greeting. Port 7 echoes, port 13 says a line and ends, and every other port refuses.
"""

import asyncio
import contextlib
import json
import os
import ssl
import sys
from urllib.parse import parse_qs, urlsplit

from spdy import Session
from websocket_server import WebSocket, accept

EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
FORWARD_PROTOCOL = "portforward.k8s.io"
TUNNEL_PROTOCOL = "SPDY/3.1+portforward.k8s.io"
STDIN, STDOUT, STDERR, ERROR, CLOSE_CHANNEL = 0, 1, 2, 3, 255
STREAMS = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR}

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1"},
    "spec": {"containers": [{"name": "c", "image": "none", "stdin": True}], "restartPolicy": "Never"},
    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}]},
}
RESOURCE = {"singularName": "", "namespaced": True, "kind": "Pod"}
DISCOVERY = {
    "/version": {"major": "1", "minor": "28", "gitVersion": "v1.28.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            RESOURCE | {"name": "pods", "verbs": ["get", "list"], "shortNames": ["po"]},
            RESOURCE | {"name": "pods/exec", "verbs": ["create", "get"], "kind": "PodExecOptions"},
            RESOURCE | {"name": "pods/attach", "verbs": ["create", "get"], "kind": "PodAttachOptions"},
            RESOURCE | {"name": "pods/portforward", "verbs": ["create", "get"], "kind": "PodPortForwardOptions"},
        ],
    },
    "/api/v1/namespaces/default/pods/p": POD,
}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OF_POD = "/api/v1/namespaces/default/pods/p/"


def status_of(code):
    """The Status of a command that has ended, as kubelets write it."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: {code}"
    return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": message,
            "details": {"causes": causes}}


async def run_command(command, directory, who, read, write):
    """Runs a command, and returns its exit code. `read` is for its input, if it has one; `write(number, data)`
    takes what it prints."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            env={"PATH": os.environ.get("PATH", ""), "CALLER": who},
            stdin=asyncio.subprocess.PIPE if read else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        await write(STDERR, f"{error}\n".encode())
        return 127

    async def feed():
        with contextlib.suppress(ConnectionError):
            while data := await read():
                process.stdin.write(data)
                await process.stdin.drain()
        process.stdin.close()

    async def drain(output, number):
        while data := await output.read(32 * 1024):
            await write(number, data)

    feeding = asyncio.ensure_future(feed()) if read else None
    try:
        await asyncio.gather(drain(process.stdout, STDOUT), drain(process.stderr, STDERR))
        return await process.wait()
    finally:
        if feeding:
            feeding.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()


class Exchange:
    """One connection: requests one after the other, and at the end perhaps another protocol."""

    def __init__(self, reader, writer, token, directory):
        self.reader, self.writer = reader, writer
        self.token, self.directory = token, directory

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def serve(self):
        try:
            while await self.request():
                pass
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.writer.close()

    async def request(self):
        """Answers one request, and returns whether another one may follow."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head.rstrip("\r\n").split("\r\n")
        self.headers = {}
        for name, value in (one.split(":", 1) for one in lines):
            self.headers.setdefault(name.lower(), []).append(value.strip())
        method, target, _ = line.split(" ")
        url = urlsplit(target)
        self.query = parse_qs(url.query)
        body = await self.reader.readexactly(int(self.header("content-length") or "0"))
        if self.header("authorization") != f"Bearer {self.token}":
            return await self.answer(401, {"kind": "Status", "status": "Failure", "code": 401})
        if url.path == REVIEWS and method == "POST":
            return await self.answer(201, json.loads(body) | {"status": {"allowed": True}})
        if url.path.startswith(OF_POD) and self.header("upgrade"):
            await self.upgrade(url.path.removeprefix(OF_POD))
            return False
        if url.path in DISCOVERY and method == "GET":
            return await self.answer(200, DISCOVERY[url.path])
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        return await self.answer(404, missing)

    def header(self, name):
        return self.headers.get(name, [""])[0]

    def offered(self, name):
        """Every value of a header that has several, in one line or in many."""
        return [one.strip() for value in self.headers.get(name, []) for one in value.split(",")]

    async def answer(self, code, body):
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        await self.send(head.encode() + text)
        return True

    async def switch(self, protocol, **headers):
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{lines}\r\n"
        await self.send(head.encode())

    def tell(self, what, protocol):
        print(what, protocol, self.header("impersonate-user"), flush=True)

    async def upgrade(self, what):
        if self.header("upgrade").lower() == "websocket":
            await self.upgrade_to_websocket(what)
            return
        wanted = (FORWARD_PROTOCOL,) if what == "portforward" else EXEC_PROTOCOLS[1:]
        chosen = next((one for one in wanted if one in self.offered("x-stream-protocol-version")), None)
        if chosen is None:
            await self.answer(403, {"kind": "Status", "status": "Failure", "code": 403})
            return
        self.tell(what, f"SPDY/3.1 {chosen}")
        await self.switch("SPDY/3.1", X_Stream_Protocol_Version=chosen)
        await self.over_spdy(what, Session(self.reader, self.send))

    async def upgrade_to_websocket(self, what):
        wanted = (TUNNEL_PROTOCOL,) if what == "portforward" else EXEC_PROTOCOLS
        chosen = next((one for one in wanted if one in self.offered("sec-websocket-protocol")), None)
        if chosen is None:
            await self.answer(400, {"kind": "Status", "status": "Failure", "code": 400})
            return
        self.tell(what, f"websocket {chosen}")
        key = accept(self.header("sec-websocket-key"))
        await self.switch("websocket", Sec_WebSocket_Accept=key, Sec_WebSocket_Protocol=chosen)
        socket = WebSocket(self.reader, self.send)
        if what != "portforward":
            await self.over_websocket(what, socket)
            return
        inner = asyncio.StreamReader()
        session = asyncio.ensure_future(self.over_spdy(what, Session(inner, socket.message)))
        async for message in socket.messages():
            inner.feed_data(message)
        inner.feed_eof()
        await session

    def asks_for(self, name):
        return self.query.get(name, [""])[0] in ("true", "1")

    async def run(self, what, read, write):
        """Runs what was asked for, and returns its Status."""
        command = self.query.get("command", [])
        if what == "attach":
            await write(STDOUT, b"attached\n")
            command = ["cat"]
        who = self.header("impersonate-user")
        read = read if self.asks_for("stdin") else None
        code = await run_command(command, self.directory, who, read, write)
        return json.dumps(status_of(code)).encode()

    async def over_websocket(self, what, socket):
        given = asyncio.StreamReader()

        async def listen():
            async for message in socket.messages():
                if message[0] == STDIN and len(message) > 1:
                    given.feed_data(message[1:])
                elif message[0] == CLOSE_CHANNEL and message[1] == STDIN:
                    given.feed_eof()
            if not given.at_eof():
                given.feed_eof()

        async def write(number, data):
            await socket.message(bytes([number]) + data)

        listening = asyncio.ensure_future(listen())
        # As Kubernetes does: an empty message says that the connection is there.
        await write(STDOUT, b"")
        status = await self.run(what, lambda: given.read(32 * 1024), write)
        await write(ERROR, status)
        await socket.close()
        await asyncio.wait([listening], timeout=5)
        listening.cancel()

    async def over_spdy(self, what, session):
        reading = asyncio.ensure_future(session.run())
        if what == "portforward":
            await forward_ports(session)
        else:
            await self.streams_of_command(what, session)
        await asyncio.wait([reading], timeout=5)
        reading.cancel()

    async def streams_of_command(self, what, session):
        wanted = {"error"} | {name for name in ("stdin", "stdout", "stderr") if self.asks_for(name)}
        streams = {}
        while wanted - {stream.headers["streamtype"] for stream in streams.values()}:
            stream = await session.opened.get()
            if stream is None:
                return
            streams[STREAMS.get(stream.headers["streamtype"])] = stream

        async def write(number, data):
            if number in streams:
                await streams[number].write(data)

        read = (lambda: streams[STDIN].input.read(32 * 1024)) if STDIN in streams else None
        status = await self.run(what, read, write)
        await streams[ERROR].write(status)
        for stream in streams.values():
            await stream.finish()


async def forward_ports(session):
    """Each connection of a client is two streams with one request ID: one for errors, one for bytes."""
    errors, tasks = {}, []
    while (stream := await session.opened.get()) is not None:
        number = stream.headers["requestid"]
        if stream.headers["streamtype"] == "error":
            errors[number] = stream
        else:
            tasks.append(asyncio.ensure_future(forward(stream, errors.pop(number))))
    for task in tasks:
        task.cancel()


async def forward(data, error):
    port = int(data.headers["port"])
    if port == 7:
        while received := await data.input.read(32 * 1024):
            await data.write(received)
    elif port == 13:
        await data.write(b"the end comes first from here\n")
    else:
        await error.write(f"nothing listens on port {port} of the pod".encode())
    await error.finish()
    await data.finish()


async def main():
    certificate, key, token, directory = sys.argv[1:]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    async def serve(reader, writer):
        await Exchange(reader, writer, token, directory).serve()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
